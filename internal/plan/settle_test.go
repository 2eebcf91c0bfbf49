package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestSettle shows where endpoints stay and where new ones go.
func TestSettle(t *testing.T) {
	for _, c := range []struct{ name, before, desired, want string }{
		{"nothing before", "", "a b c", "a b c"},
		{"same in another order", "c a b", "a b c", "c a b"},
		{"one replaced", "c a b", "a b d", "d a b"},
		{"one more", "c a b", "a b c d", "c a b d"},
		{"one less, in the middle", "c a b", "b c", "c b"},
		{"one less, the first", "c a b", "a b", "b a"},
		{"all replaced", "a b", "c d", "c d"},
		{"a weight grows", "a b", "a a b", "a b a"},
		{"a weight shrinks", "a b a", "a b", "a b"},
		{"nothing left", "a b", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, desired, want := slotted(c.before), slotted(c.desired), slotted(c.want)
			got := plan.Settle(before, desired)
			if diff := cmp.Diff(want.Tables[0].Text(), got.Tables[0].Text()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again := plan.Settle(got, desired); again.Tables[0].Text() != got.Tables[0].Text() {
				t.Error("settling again moves endpoints")
			}
		})
	}
}

// slotted returns a ruleset with one frontend whose endpoints are named by
// letters.
func slotted(endpoints string) *nft.Ruleset {
	s := nft.Set{
		Name: "endpoints",
		Key:  []nft.Datatype{nft.Address, nft.InetProto, nft.Port, nft.ClassID},
		Data: []nft.Datatype{nft.Address, nft.Port},
	}
	for i, name := range strings.Fields(endpoints) {
		s.Elements = append(s.Elements, nft.Element{
			Key:   nft.Key{Address: workload.Addr("10.96.0.1"), Protocol: model.TCP, Port: 80, Slot: uint32(i)},
			Value: nft.Value{Endpoint: workload.AddrPort("10.128.0.1", uint16(name[0]))},
		})
	}
	return &nft.Ruleset{Tables: []*nft.Table{{Family: model.IPv4, Sets: []*nft.Set{&s}}}}
}
