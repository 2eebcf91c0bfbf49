package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// TestManyFindings: of many problems, the first ones are reported, and how many more there
// are, which is an error if one of these is.
func TestManyFindings(t *testing.T) {
	var f Findings
	for range budget.Findings + 3 {
		f.Warn("spec", "x", "is odd")
	}
	all := f.All()
	last := all[len(all)-1]
	if len(all) != budget.Findings+1 || last.Error() != "and 3 more problems" || !last.Warning {
		t.Errorf("%d findings, the last one %+v", len(all), last)
	}
	f.Add("spec", "x", strings.Repeat("é", budget.FindingText))
	all = f.All()
	if last := all[len(all)-1]; last.Error() != "and 4 more problems" || last.Warning {
		t.Errorf("the last one is %+v", last)
	}
	first := FirstOf(all)
	if last, want := first[len(first)-1], fmt.Sprintf("and %d more problems", budget.Findings+4-budget.ReportedFindings); len(first) != budget.ReportedFindings+1 || last.Error() != want || last.Warning {
		t.Errorf("of an API server: %d findings, the last one %+v, want %s", len(first), last, want)
	}
	f = Findings{}
	f.Add("spec", nil, strings.Repeat("é", budget.FindingText))
	if n := len(f.All()[0].Error()); n > budget.FindingText+20 {
		t.Errorf("a problem of %d bytes", n)
	}
}
