package preflight

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestLimitsAreOptional: a kernel without a module for limits lacks nothing else (4.93).
func TestLimitsAreOptional(t *testing.T) {
	for _, name := range []string{"limit", "connlimit"} {
		problems, err := check(lacksExpression(name), model.Families[:])
		if err != nil || len(problems) != 2 {
			t.Fatalf("without %s: %v, %v; want one problem for each family", name, problems, err)
		}
		for _, p := range problems {
			if !p.Limits || !strings.Contains(p.String(), "load the module nft_"+name) {
				t.Errorf("without %s: %s, for limits only: %t", name, p, p.Limits)
			}
		}
	}
}
