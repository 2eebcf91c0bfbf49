package proof

import (
	"log/slog"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// follower changes rules as an agent does: a change of Services from the rules before it, and only a
// change of settings from all rules.
type follower struct {
	router  *model.Router
	states  map[model.ServiceName]model.ServiceState
	rules   *render.State // nil: there are none
	applier *apply.Applier
	memory  *memory
}

func newFollower(rules *bytecode.Ruleset) *follower {
	m := &memory{rules: rules}
	return &follower{router: model.NewRouter(), applier: apply.New(m, slog.New(slog.DiscardHandler)), memory: m}
}

// become carries out the transactions of a change, and calls a function between them.
func (f *follower) become(s *model.Snapshot, c model.Config, between func() error) error {
	moved, base := f.router.Configure(c, s.Nodes, s.ServiceCIDRs)
	update, now := s.Since(f.states)
	f.states = now
	changes := model.JoinChanges(moved, f.router.SetServices(update.Services))
	var delta nft.Delta
	if base || f.rules == nil {
		f.rules, delta = render.Start(f.router.Routing())
	} else {
		delta = f.rules.Change(changes, f.router.NodePortAddresses())
	}
	f.memory.between, f.memory.commits = between, 0
	_, err := f.applier.Apply(delta)
	return err
}

// memory is a kernel for an applier. It has bytecode, and the rules that it is made of.
type memory struct {
	current nft.Ruleset
	rules   *bytecode.Ruleset
	between func() error
	commits int // of the change
}

// ReadExpecting implements [apply.Kernel].
func (m *memory) Claim() ([]model.Family, error) { return nil, nil }

func (m *memory) Generation() (uint32, error) { return 1, nil }

func (m *memory) ReadExpecting(*nft.Ruleset) (*nft.Ruleset, uint32, error) {
	return workload.Clone(&m.current), 0, nil
}

// Empty implements [apply.Kernel].
func (m *memory) Empty() (bool, error) { return len(m.current.Tables) == 0, nil }

// Commit implements [apply.Kernel].
func (m *memory) Commit(p kernel.Prepared, _ uint32) (codec.Size, error) {
	if m.commits++; m.commits > 1 {
		if err := m.between(); err != nil {
			return codec.Size{}, err
		}
	}
	if err := codec.CarryOutPhase(p.Plan, m.rules); err != nil {
		return codec.Size{}, err
	}
	for i := range p.Changes {
		if err := workload.CarryOut(&m.current, &p.Changes[i]); err != nil {
			return codec.Size{}, err
		}
	}
	return codec.Size{}, nil
}

// Check implements [apply.Kernel].
func (m *memory) Check(*plan.Plan) error { return nil }

// Bindings implements [apply.Kernel]: the proof has bindings of its own.
func (m *memory) Bindings(model.Family, int) ([]*nft.Set, error) { return nil, nil }

// Unbind implements [apply.Kernel].
func (m *memory) Unbind(model.Family, *nft.Set) error { return nil }
