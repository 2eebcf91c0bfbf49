// Package proof carries out plans on bytecode, for tests that prove what rules do.
package proof

import (
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

	current nft.Ruleset
	world   *prove.World // of which they are the rules
}

// Become carries out the plan that leads to the rules for some objects, and proves them.
func (k *Kernel) Become(s *model.Snapshot, c model.Config) (*prove.Report, error) {
	next := plan.Settle(&k.current, render.Render(model.Resolve(s, c)))
	p := plan.Diff(&k.current, next)
	before, after := k.world, prove.NewWorld(s, c)
	if k.current, k.world = *next, after; before == nil {
		before = prove.NewWorld(&model.Snapshot{}, c)
	}
	var wrong *prove.Report
	err := codec.CarryOut(p, &k.Rules, func() error {
		if !k.Between {
			return nil
		}
		if r := after.ProveBetween(before, &k.Rules); r.Wrong > 0 && wrong == nil {
			wrong = r
		}
		return nil
	})
	if err != nil || wrong != nil {
		return wrong, err
	}
	return after.Prove(&k.Rules), nil
}
