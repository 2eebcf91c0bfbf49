// Package proof carries out plans on bytecode, for tests that prove what rules do.
package proof

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Kernel is rules as bytecode, which plans change.
type Kernel struct {
	Rules bytecode.Ruleset
	// Between proves the rules between the transactions of a plan, too: packets must experience what
	// the objects before or the new ones ask for. That is for plans with one change.
	Between bool
	// Follows makes changes from the rules before them, as an agent does. Otherwise all rules are
	// rendered from nothing, and compared.
	Follows bool

	current  nft.Ruleset
	follower *follower
	world    *prove.World // of which they are the rules
}

// Become carries out the plan that leads to the rules for some objects, and proves them: where the
// process that relays has ended, and where it has its port.
func (k *Kernel) Become(p Phase) (*prove.Report, error) {
	s, c := p.Snapshot, p.Config
	if err := k.add(p.Others); err != nil {
		return nil, err
	}
	before, after := k.world, prove.NewWorld(s, c)
	if k.world = after; before == nil {
		before = prove.NewWorld(&model.Snapshot{}, c)
	}
	var wrong *prove.Report
	note := func(r *prove.Report) {
		if r.Wrong > 0 && wrong == nil {
			wrong = r
		}
	}
	var last *bytecode.Ruleset
	if k.Between {
		last = k.Rules.Clone()
	}
	committed := func() {
		note(after.ProveUnderWay(before, bytecode.NewCommit(last, &k.Rules)))
		last = k.Rules.Clone()
	}
	err := k.carryOut(s, c, func() error {
		if k.Between {
			note(after.ProveBetween(before, &k.Rules))
			committed()
		}
		return nil
	})
	if err == nil && k.Between {
		committed()
	}
	if err != nil || wrong != nil {
		return wrong, err
	}
	report := after.Prove(&k.Rules)
	if report.Wrong == 0 && slices.ContainsFunc(s.Services, func(s *model.Service) bool { return s.Extra().Relay != model.NoRelay }) {
		return proveRelayed(prove.NewWorld(s, c), &k.Rules)
	}
	return report, nil
}

// add adds what another program adds to our sets. The next change begins with a comparison.
func (k *Kernel) add(all []Interval) error {
	current := &k.current
	if k.follower != nil && len(all) > 0 {
		current, k.follower.rules = &k.follower.memory.current, nil
	}
	for _, i := range all {
		if err := i.add(&k.Rules, current); err != nil {
			return err
		}
	}
	return nil
}

// carryOut carries out the plan for some objects, and calls a function between its transactions.
func (k *Kernel) carryOut(s *model.Snapshot, c model.Config, between func() error) error {
	if k.Follows {
		if k.follower == nil {
			k.follower = newFollower(&k.Rules)
		}
		return k.follower.become(s, c, between)
	}
	next := plan.Settle(&k.current, render.Render(model.Resolve(s, c)))
	p := plan.Diff(&k.current, next)
	k.current = *next
	return codec.CarryOut(p, &k.Rules, between)
}
