package kernel

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// BenchmarkTransaction makes transactions as fast as it can, of one element each, which says how
// long 32 bits of generations last: see [generations].
func BenchmarkTransaction(b *testing.B) {
	s := newSandbox(b)
	set := &nft.Set{Name: nft.ClusterIPsSet, Key: []nft.Datatype{nft.Address}}
	with := *set
	with.Elements = []nft.Element{{Key: nft.Key{Address: netip.MustParseAddr("10.96.0.1")}}}
	tables := func(s *nft.Set) *nft.Ruleset {
		return &nft.Ruleset{Tables: []*nft.Table{{Family: model.IPv4, Sets: []*nft.Set{s}}}}
	}
	if _, err := s.Commit(Prepared{Plan: plan.Diff(&nft.Ruleset{}, tables(set))}, AnyGeneration); err != nil {
		b.Fatal(err)
	}
	changes := [2]Prepared{
		Prepare(plan.Diff(tables(set), tables(&with)), Prepared{}),
		Prepare(plan.Diff(tables(&with), tables(set)), Prepared{}),
	}
	before, n := s.ns.TestGeneration(b), 0
	for b.Loop() {
		if _, err := s.Commit(changes[n%2], AnyGeneration); err != nil {
			b.Fatal(err)
		}
		n++
	}
	if after := s.ns.TestGeneration(b); int(after-before) != n {
		b.Fatalf("%d transactions, and %d generations", n, after-before)
	}
}
