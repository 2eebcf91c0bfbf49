package apply

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestRepairsBetweenTransactions: 13.14. Another nftproxy with other Services repairs the
// tables between two transactions of a change. The second one must not direct packets to
// lanes and slots that the repair has removed: the change is refused, and a comparison
// makes it.
func TestRepairsBetweenTransactions(t *testing.T) {
	for _, committed := range []int{1, 2} {
		k := newFake()
		k.seen = func(before, after *nft.Ruleset) {
			for _, f := range model.Families {
				if cur, next := before.Table(f), after.Table(f); cur != nil && next != nil {
					checkBetween(t, cur, next)
				}
			}
		}
		w, other := newWalker(5, k), newFollower(k)
		w.applier.Shared = true
		w.step(t, w.All()...)
		repairs := 0
		for range steps / 4 {
			wanted, _, _ := k.Read() // by the other one
			commits := 0
			w.applier.Observer = following{committed: func(Commit) {
				if commits++; commits == committed {
					if p, err := other.applier.Apply(nft.FromNothing(workload.Clone(wanted))); err != nil {
						t.Error(err)
					} else if !p.Empty() {
						repairs++
					}
				}
			}}
			w.step(t, w.one())
			w.applier.Observer = Unobserved{}
			w.compare(t)
		}
		if repairs < steps/8 {
			t.Errorf("%d repairs after transaction %d of a change", repairs, committed)
		}
	}
}
