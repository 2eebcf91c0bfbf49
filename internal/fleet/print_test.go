package fleet_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestDocumentedOutput: 18.2, 18.6, 18.12. The page shows what the commands print.
func TestDocumentedOutput(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	node := func(name string, verdict fleet.Verdict, reason string) fleet.NodeReport {
		n := fleet.NodeReport{Name: name, Verdict: verdict, Reason: reason}
		if verdict != fleet.NoAnswer && verdict != fleet.NoAgent {
			n.Version, n.Source, n.LastSuccess = "v0.2.0", "API server", now.Add(-4*time.Second)
		}
		return n
	}
	behind := node("node-2", fleet.Behind, "it has seen endpointslices up to resourceVersion 81204, and shop/web-x7k2p has 81377")
	behind.BehindSeconds, behind.Version, behind.LastSuccess = 42, "v0.1.0", now.Add(-44*time.Second)
	report := fleet.Report{
		Asked:    now,
		Verdicts: map[fleet.Verdict]int{fleet.NoAnswer: 1, fleet.NoAgent: 1, fleet.Behind: 1, fleet.Problems: 1, fleet.Good: 1},
		Versions: map[string]int{"v0.1.0": 1, "v0.2.0": 2},
		Services: []fleet.ServiceProblem{{Problem: api.Problem{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "cart"}, Reason: model.LacksEndpoints, Message: "10.96.0.11:80/tcp: it has no endpoints"}, Nodes: 3}},
		Nodes: []fleet.NodeReport{
			node("node-3", fleet.NoAnswer, "no answer within 5s: is the process stopped?"),
			node("node-5", fleet.NoAgent, "no pod of nftproxy is on the node"),
			behind,
			node("node-7", fleet.Problems, `RulesChanged: by process 4711 ("nft"), 9s ago; the repair took 1 change; first, of Service shop/web: add element { 10.96.0.10 . tcp . 80 comment "shop/web:http" : 6:104 } of map ip nftproxy services`),
			node("node-1", fleet.Good, ""),
		},
	}
	differences := fleet.Differences{Nodes: []fleet.NodeDifferences{
		{Name: "node-3", Services: 214},
		{Name: "node-7", Services: 214, KernelCount: 1, Kernel: []api.Difference{{Service: "shop/web", Change: `add element { 10.96.0.10 . tcp . 80 comment "shop/web:http" : 6:104 } of map ip nftproxy services`}}},
	}}
	times := func(name string, p50, most, excess float64) fleet.NodeTimes {
		return fleet.NodeTimes{Name: name, Seconds: make([]float64, 5), P50: p50, Max: most, Excess: excess}
	}
	convergence := fleet.Convergence{
		Rounds: 5,
		Times:  fleet.Distribution{Count: 30, P50: 0.0031, P90: 0.0088, P99: 0.212, Max: 0.212},
		Excess: fleet.Distribution{Count: 30, P50: 0.0024, Max: 0.0061},
		Histogram: []fleet.Bucket{{UpTo: 0.002, Count: 4}, {UpTo: 0.005, Count: 17}, {UpTo: 0.010, Count: 7}, {UpTo: 0.020, Count: 1}, {UpTo: 0.050}, {UpTo: 0.1},
			{UpTo: 0.2}, {UpTo: 0.5, Count: 1}},
		Nodes: []fleet.NodeTimes{
			{Name: "node-3", Reason: "no answer within 30s: is the process stopped?"},
			{Name: "node-8", Seconds: make([]float64, 1), P50: 0.0029, Max: 0.0029, Excess: 0.0022, Reason: "round 2: behind: changes wait for 31s"},
			times("node-5", 0.0088, 0.212, 0.0061), times("node-1", 0.0034, 0.0173, 0.0027), times("node-7", 0.0031, 0.0079, 0.0029),
			times("node-2", 0.0028, 0.0061, 0.0020), times("node-6", 0.0030, 0.0052, 0.0023), times("node-4", 0.0022, 0.0031, 0.0019),
		},
		Uncovered: []string{"node-9"},
	}
	page, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	var status, diff, converge strings.Builder
	if err := convergence.Print(&converge, false, false); err != nil {
		t.Fatal(err)
	}
	if err := report.Print(&status, true, false); err != nil {
		t.Fatal(err)
	}
	if err := differences.Print(&diff, false); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"status": status.String(), "diff": diff.String(), "converge": converge.String()} {
		if !strings.Contains(string(page), "```\n"+want+"```\n") {
			t.Errorf("docs/kubectl.md does not show what %s prints:\n%s", command, want)
		}
	}
}

// TestPrintManyNodes: 18.2. Nodes that need attention are all listed, and of the others some.
func TestPrintManyNodes(t *testing.T) {
	r := fleet.Report{Verdicts: map[fleet.Verdict]int{fleet.NoAnswer: 30, fleet.Good: 70}}
	for i := range 100 {
		verdict := fleet.NoAnswer
		if i >= 30 {
			verdict = fleet.Good
		}
		r.Nodes = append(r.Nodes, fleet.NodeReport{Name: "n", Verdict: verdict})
	}
	for all, want := range map[bool]int{false: 30 + 20, true: 100} {
		var b strings.Builder
		if err := r.Print(&b, all, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), "\nn "); got != want || strings.Contains(b.String(), "and 50 more that are ok: --all") == all {
			t.Errorf("all %t: %d nodes are listed, want %d", all, got, want)
		}
	}
}
