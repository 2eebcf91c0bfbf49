package apply

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// TestExchange: 13.15. Whatever endpoints a frontend has in whatever slots, an exchange changes the
// same slots as the whole lists of endpoints do.
func TestExchange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		before, after, x := someExchange(r, 1+r.IntN(40))
		var order []uint32
		if r.IntN(3) > 0 {
			for _, i := range r.Perm(len(before)) {
				order = append(order, uint32(i))
			}
		}
		s := make(slots)
		if order != nil {
			s[x.Frontend.ID()] = order
		}
		held := rulesetOf(slices.Clone(before))
		s.placeEndpoints(held)
		wanted := plan.Settle(held, rulesetOf(after))
		changes := plan.Diff(held, wanted).Changes

		u := &execution{Applier: &Applier{slots: s}, before: rulesetOf(nil), after: rulesetOf(nil)}
		u.delta.Exchanges = []nft.Exchange{x}
		if !u.addExchanges() {
			t.Fatal("the slots are not known")
		}
		if got := plan.Diff(u.before, u.after).Changes; !slices.EqualFunc(got, changes, func(a, b plan.Change) bool { return a.Text() == b.Text() && *a.Old == *b.Old }) {
			t.Fatalf("%v in the order %v: the exchange makes %d changes, all elements %d", x, order, len(got), len(changes))
		}
		var now []uint32
		if len(u.moved) > 0 {
			now = u.moved[0].Order
		}
		if want := orderOf(after, wanted.Tables[0].Set(nft.EndpointsMap).Elements); !slices.Equal(now, want) {
			t.Fatalf("%v in the order %v: %v, want %v", x, order, now, want)
		}
	}
}

// someExchange returns the elements of a frontend as rendered before and after some of its endpoints
// are replaced, and the exchange of these.
func someExchange(r *rand.Rand, n int) (before, after []nft.Element, x nft.Exchange) {
	ranks := r.Perm(2 * n)
	old := slices.Sorted(slices.Values(ranks[:n]))
	now := slices.Clone(ranks[:n])
	for i := range r.IntN(n + 1) {
		now[i] = ranks[n+i]
	}
	slices.Sort(now)
	before, after = endpointsOf(old), endpointsOf(now)
	for _, all := range [][]nft.Element{before, after} {
		for i := range all {
			all[i].Key = nft.FrontendKey(exchangeFrontend)
			all[i].Key.Slot = nft.FirstSlot + uint32(i)
		}
	}
	x = nft.Exchange{Frontend: exchangeFrontend, Endpoints: n}
	lacks := func(all []nft.Element, e nft.Element) bool {
		return !slices.ContainsFunc(all, func(o nft.Element) bool { return o.Value == e.Value })
	}
	for i := range n {
		if e := before[i]; lacks(after, e) {
			x.Out = append(x.Out, nft.Position{At: uint32(i), Endpoint: e.Value.Endpoint})
		}
		if e := after[i]; lacks(before, e) {
			x.In = append(x.In, nft.Position{At: uint32(i), Endpoint: e.Value.Endpoint})
		}
	}
	return before, after, x
}

var exchangeFrontend = model.Frontend{Address: netip.MustParseAddr("10.96.0.1"), Protocol: model.TCP, Port: 80}

// TestExchangeUnknown has a record of another number of slots than the frontend.
func TestExchangeUnknown(t *testing.T) {
	u := &execution{Applier: &Applier{slots: slots{exchangeFrontend.ID(): {1, 0, 2}}}, before: rulesetOf(nil), after: rulesetOf(nil)}
	u.delta.Exchanges = []nft.Exchange{{Frontend: exchangeFrontend, Endpoints: 2}}
	if u.addExchanges() {
		t.Error("the slots count as known")
	}
}

// TestExchangeBesideOthers: a frontend whose endpoints are settled in the same change as an exchange
// keeps a record of its own slots.
func TestExchangeBesideOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	_, _, x := someExchange(r, 8)
	other := endpointsOf([]int{1, 2, 3})
	for i := range other {
		other[i].Key.Address, other[i].Key.Slot = netip.MustParseAddr("10.96.0.9"), nft.FirstSlot+uint32(i)
	}
	rendered := slices.Clone(other)
	rendered[0].Value, rendered[2].Value = other[2].Value, other[0].Value
	u := &execution{Applier: &Applier{slots: make(slots)}, before: rulesetOf(other)}
	u.delta = nft.Delta{Before: u.before, After: rulesetOf(rendered), Exchanges: []nft.Exchange{x}}
	u.after = plan.Settle(u.before, u.delta.After)
	if !u.addExchanges() {
		t.Fatal("the slots are not known")
	}
	u.recordContent()
	if order := u.slots[other[0].Key.Frontend().ID()]; !slices.Equal(order, []uint32{2, 1, 0}) {
		t.Errorf("the other frontend has the order %v", order)
	}
	for _, s := range []*nft.Set{u.before.Tables[0].Set(nft.EndpointsMap), u.after.Tables[0].Set(nft.EndpointsMap)} {
		if !slices.IsSortedFunc(s.Elements, func(a, b nft.Element) int { return a.Key.Compare(b.Key) }) {
			t.Error("the elements are not sorted")
		}
	}
}
