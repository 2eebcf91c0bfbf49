//go:build guest && counting

package test

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// What a pair of DNS queries costs by each path, in instructions. Translation before connection tracking would have to
// cost a quarter less than today's path to be worth its rules: docs/performance.md says why nftproxy has none.
func TestQueriesCost(t *testing.T) {
	for _, f := range model.Families {
		costs := make(map[string]queryCost)
		for _, r := range measureQueries(t, f, 10, 100) {
			costs[r.name] = r
			fmt.Fprintf(t.Output(), "%s, %s: %s for a pair of queries, %.0f %%, %.2f entries of connection tracking left\n", f, r.name, r.cost, 100*r.ratio, r.entries)
		}
		today := costs["round-robin"]
		for _, name := range []string{"translated, then tracked", "translated, not tracked"} {
			if r := costs[name]; r.cost < today.cost*3/4 {
				t.Errorf("%s, %s: %s, want three quarters of today's %s at least", f, name, r.cost, today.cost)
			}
		}
	}
}
