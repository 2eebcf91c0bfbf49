package daemon

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
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
		b.Isolates, b.InForce = true, w.Isolation.InForce()
	}
	for _, name := range w.agent.Kept() {
		b.Kept = append(b.Kept, api.KeptService{ServiceRef: name.Ref()})
	}
	for _, name := range w.agent.Quarantined() {
		b.Kept = append(b.Kept, api.KeptService{ServiceRef: name.Ref(), Refused: true})
	}
	return b
}

// addKnown adds what features know.
func addKnown(b *api.Basis, k *feature.Known) {
	b.Failing, b.Starting, b.Names = append([]model.FailingCheck{}, k.Failing...), k.Starting, k.Resolved // failing: not nil
	b.Drained, b.Changes = k.Drained.Facts(), runtimeChanges(k.Changes)
}
