package daemon

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/feature"
)

// Basis implements [report.Facts].
func (w *work) Basis() *api.Basis {
	b := &api.Basis{
		Version: api.BasisVersion, Settings: w.Config.RuleSettings(), Families: []string{},
		Files: w.Cluster == nil || w.Joined != nil, Cluster: w.Cluster != nil, Words: w.Words(),
		NoLimits: w.node.NoLimits, UntrackedLogs: w.node.Observe.Untracked,
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
	var known feature.Known
	for k := range featuresOf[feature.Knower](w.Features) {
		k.AddTo(&known)
	}
	addKnown(b, &known)
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

// addKnown adds what features know.
func addKnown(b *api.Basis, k *feature.Known) {
	b.Failing, b.Drained, b.Changes = make([]api.FailingCheck, 0, len(k.Failing)), drainedOf(k.Drained), runtimeChanges(k.Changes)
	for _, f := range k.Failing {
		b.Failing = append(b.Failing, api.FailingCheck{Namespace: f.Service.Namespace, Service: f.Service.Name, Endpoint: f.Endpoint, Protocol: f.Protocol, Check: f.Check})
	}
	for _, n := range k.Resolved {
		r := api.ResolvedName{Namespace: n.Service.Namespace, Service: n.Service.Name, Name: n.Name}
		for _, a := range n.Addresses {
			r.Addresses = append(r.Addresses, api.ResolvedAddress{Address: a.Address, Port: a.Port, Weight: a.Weight, Priority: a.Priority})
		}
		b.Names = append(b.Names, r)
	}
	for _, e := range k.Starting {
		b.Starting = append(b.Starting, api.StartingEndpoint{Namespace: e.Service.Namespace, Service: e.Service.Name, Endpoint: e.Endpoint, Part: e.Part})
	}
}
