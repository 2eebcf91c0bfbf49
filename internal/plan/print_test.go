package plan_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// counted returns how many lines of a printed plan have each sign, without the
// lines of rules.
func counted(t *testing.T, p *plan.Plan) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for line := range strings.Lines(workload.Printed(t, p)) {
		if sign, ok := strings.CutPrefix(line, "  "); ok && sign[0] != ' ' {
			out[sign[:1]]++
		}
	}
	return out
}

var comments = regexp.MustCompile(`\(comment "(.*)" -> "(.*)"\)`)

func checkSummary(t *testing.T, p *plan.Plan) {
	t.Helper()
	for _, c := range comments.FindAllStringSubmatch(workload.Printed(t, p), -1) {
		if c[1] == c[2] {
			t.Errorf("a change is printed that changes nothing: %s", c[0])
		}
	}
	lines := counted(t, p)
	for sign, verb := range map[string]plan.Verb{"+": plan.Add, "~": plan.Replace, "-": plan.Delete} {
		if lines[sign] != p.Count(verb) {
			t.Errorf("%d lines with %s, and %q", lines[sign], sign, p.Summary())
		}
	}
}

// TestSummary: the summary counts the lines that are printed.
func TestSummary(t *testing.T) {
	w := workload.NewWorld(6)
	before := &nft.Ruleset{}
	for range 100 {
		after := plan.Settle(before, w.Step())
		checkSummary(t, plan.Diff(before, after))
		checkSummary(t, plan.Diff(&nft.Ruleset{}, after))
		checkSummary(t, plan.DiffOutdated(before, after, model.Families[:]))
		flushed := workload.Clone(after)
		for _, table := range flushed.Tables {
			for _, c := range table.Chains {
				c.Rules = nil
			}
		}
		checkSummary(t, plan.Diff(flushed, after))
		if t.Failed() {
			t.FailNow()
		}
		before = after
	}
}

// TestPrintRedeclaration: temporary changes while a map is redeclared are not printed.
// Other changes are printed with the rules from before.
func TestPrintRedeclaration(t *testing.T) {
	before, after := workload.Clone(workload.Sample()), workload.Clone(workload.Sample())
	for _, table := range after.Tables {
		table.Set(nft.ServicesMap).Counters = !table.Set(nft.ServicesMap).Counters
	}
	p := plan.Diff(before, after)
	checkSummary(t, p)
	if text := workload.Printed(t, p); strings.Contains(text, "unserved") || strings.Contains(text, "+ chain") {
		t.Errorf("chains that stay are printed:\n%s", text)
	}
	for _, table := range after.Tables {
		c := table.Chain(nft.UnservedChain)
		c.Rules = c.Rules[:1]
	}
	p = plan.Diff(before, after)
	checkSummary(t, p)
	if text := workload.Printed(t, p); strings.Count(text, "~ chain unserved") != 2 || strings.Count(text, "    - ip daddr @service-cidrs drop") != 1 {
		t.Errorf("the changed chain is not printed with its rules of before:\n%s", text)
	}
}
