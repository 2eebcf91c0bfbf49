package daemon

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/feature"
)

func (w *work) basis() *api.Basis {
	b := &api.Basis{
		Version: api.BasisVersion, Settings: w.Config.RuleSettings(), Families: []string{},
		Files: w.Cluster == nil || w.Joined != nil, Cluster: w.Cluster != nil, Words: w.Words(),
		NoLimits: w.node.NoLimits, UntrackedLogs: w.node.Observe.Untracked, Failing: []api.FailingCheck{}, Drained: []api.Drained{},
	}
	if w.node.NeedsInterfaces() || w.agent.HasRanges() {
		b.InterfaceAddresses = w.interfaces.Addresses()
	}
	if len(w.node.LoadBalancerCIDRs) > 0 {
		b.Links = w.interfaces.Networks()
	}
	for _, f := range w.node.Families {
		b.Families = append(b.Families, f.String())
	}
	if d := w.drains(); d != nil {
		b.Drained = drainedOf(d.List())
	}
	if c := w.changed(); c != nil {
		b.Changes = runtimeChanges(c.Changes())
	}
	if c := feature.Find[interface{ Failing() []feature.Failing }](w.Features); c != nil {
		b.Failing = failingChecks(c.Failing())
	}
	if n := feature.Find[interface{ Resolved() []feature.Resolved }](w.Features); n != nil {
		b.Names = resolvedNames(n.Resolved())
	}
	if s := feature.Find[interface{ Starting() []feature.Starting }](w.Features); s != nil {
		for _, e := range s.Starting() {
			b.Starting = append(b.Starting, api.StartingEndpoint{Namespace: e.Service.Namespace, Service: e.Service.Name, Endpoint: e.Endpoint, Part: e.Part})
		}
	}
	if w.Isolation != nil {
		b.Isolates = true
		for _, f := range w.Isolation.InForce() {
			b.InForce = append(b.InForce, api.InForce(f))
		}
	}
	for _, name := range w.agent.Kept() {
		b.Kept = append(b.Kept, api.KeptService{Namespace: name.Namespace, Service: name.Name})
	}
	for _, name := range w.agent.Quarantined() {
		b.Kept = append(b.Kept, api.KeptService{Namespace: name.Namespace, Service: name.Name, Refused: true})
	}
	return b
}

func failingChecks(all []feature.Failing) []api.FailingCheck {
	out := make([]api.FailingCheck, len(all))
	for i, f := range all {
		out[i] = api.FailingCheck{Namespace: f.Service.Namespace, Service: f.Service.Name, Endpoint: f.Endpoint, Protocol: f.Protocol, Check: f.Check}
	}
	return out
}

func resolvedNames(all []feature.Resolved) (out []api.ResolvedName) {
	for _, n := range all {
		r := api.ResolvedName{Namespace: n.Service.Namespace, Service: n.Service.Name, Name: n.Name}
		for _, a := range n.Addresses {
			r.Addresses = append(r.Addresses, api.ResolvedAddress{Address: a.Address, Port: a.Port, Weight: a.Weight, Priority: a.Priority})
		}
		out = append(out, r)
	}
	return out
}
