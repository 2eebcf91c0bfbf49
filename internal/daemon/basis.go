package daemon

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/feature"
)

func (w *work) basis() *api.Basis {
	b := &api.Basis{
		Version: api.BasisVersion, Settings: w.Config.RuleSettings(), Families: []string{},
		Files: w.Cluster == nil || w.Joined != nil, Cluster: w.Cluster != nil, Words: w.Words(),
		NoLimits: w.node.NoLimits, UntrackedLogs: w.node.Observe.Untracked, Failing: w.checks.Failing(), Drained: []api.Drained{},
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
	if w.drains != nil {
		b.Drained = w.drains.List().Report()
	}
	if w.changed != nil {
		b.Changes = w.changed.List().Report()
	}
	if n := feature.Find[interface{ Report() []api.ResolvedName }](w.Features); n != nil {
		b.Names = n.Report()
	}
	if s := feature.Find[interface{ Report() []api.StartingEndpoint }](w.Features); s != nil {
		b.Starting = s.Report()
	}
	if w.Isolation != nil {
		b.Isolates, b.InForce = true, w.Isolation.InForce()
	}
	for _, name := range w.agent.Kept() {
		b.Kept = append(b.Kept, api.KeptService{Namespace: name.Namespace, Service: name.Name})
	}
	for _, name := range w.agent.Quarantined() {
		b.Kept = append(b.Kept, api.KeptService{Namespace: name.Namespace, Service: name.Name, Refused: true})
	}
	return b
}
