package conntest

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/joshdk/go-junit"

	"github.com/nftproxy/nftproxy/internal/explain"
)

// TestJudgeDialled: 18.16. What peers say is judged by the prediction for the node.
func TestJudgeDialled(t *testing.T) {
	of := func(c *Case, d *Dial, attempts ...Attempt) *Result {
		return c.JudgeDialled(d, &Dialled{Attempts: attempts})
	}
	for _, c := range []struct {
		name  string
		edit  func(*Case)
		learn Knowledge
		got   []Attempt
		state State
		why   string
	}{
		{"each endpoint", nil, Answers, []Attempt{by(Answered, first), by(Answered, second)}, Passed, ""},
		{"a stranger", nil, Answers, []Attempt{by(Answered, netip.MustParseAddrPort("10.9.9.9:1"))}, NotPassed, "not an endpoint for this client"},
		{"no rules", nil, Answers, []Attempt{by(Silent, netip.AddrPort{})}, NotPassed, "no answer"},
		{"a Service of others", nil, Outcomes, []Attempt{by(Answered, netip.AddrPort{})}, Passed, ""},
		{"a silent server of UDP", func(c *Case) { c.Protocol = "udp" }, Outcomes, []Attempt{by(Silent, netip.AddrPort{})}, NotTried, "a server need not answer"},
		{"another client address", nil, Answers, []Attempt{{Outcome: Answered, Endpoint: first, Source: node, Client: client}, by(Answered, second)}, NotPassed, "its address should be kept"},
		{"of a node to a pod elsewhere", func(c *Case) { c.From = Host }, Answers, []Attempt{{Outcome: Answered, Endpoint: first, Source: node, Client: client}, by(Answered, second)}, Passed, ""},
		{"rejected without an answer", func(c *Case) { c.Expected = refused }, Answers, []Attempt{by(Silent, netip.AddrPort{})}, NotPassed, "no answer"},
		{"rejected without an answer by another proxy", func(c *Case) { c.Loose, c.Expected = true, refused }, Answers, []Attempt{by(Silent, netip.AddrPort{})}, Passed, ""},
		{"settings unknown", func(c *Case) { c.Loose = true }, Answers, []Attempt{{Outcome: Answered, Endpoint: first, Source: node, Client: client}, by(Answered, second)}, Passed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := caseOf(Prediction{Outcomes: []Expected{forward(first, 0.5), forward(second, 0.5)}})
			x.Node, x.From = "n1", Pod
			if c.edit != nil {
				c.edit(x)
			}
			d := x.Dial(c.learn, time.Second, 0)
			r := of(x, &d, c.got...)
			if r.State != c.state || !strings.Contains(strings.Join(r.Reasons, "\n"), c.why) || (c.why == "") != (len(r.Reasons) == 0) {
				t.Errorf("%s: %q; want %s, %q", r.State, r.Reasons, c.state, c.why)
			}
		})
	}
	x := caseOf(Prediction{Outcomes: []Expected{{Verdict: explain.Reject, Share: 1}}})
	if d := x.Dial(Answers, time.Second, 0); !d.Refused || d.Most != 1 {
		t.Errorf("a refusal is tried as %+v", d)
	}
}

// clusterReport is of three nodes: one lacks an element, and the pods of one do not start.
func clusterReport() *Report {
	var results []*Result
	for _, n := range []string{"node-1", "node-7"} {
		for i, from := range []Origin{Pod, Host} {
			for _, p := range []Prediction{both, refused, denied} {
				x := caseOf(p)
				x.Node, x.From, x.Service = n, from, "cluster-ip:tcp"
				met := []Attempt{by(Answered, first), by(Answered, second), by(Answered, first), by(Answered, second)}
				switch {
				case len(p.Forwards()) == 0 && p.Rejects():
					met, x.Service = []Attempt{by(Refused, netip.AddrPort{})}, "no-endpoints:tcp"
				case len(p.Forwards()) == 0:
					met, x.Service, x.Kind = []Attempt{by(Silent, netip.AddrPort{})}, "denied:tcp", "load balancer IP"
					if x.To = netip.MustParseAddrPort("198.18.77.9:80"); i == 1 {
						x.Skip = "the client has no route to 198.18.77.9"
					}
				case n == "node-7":
					met = []Attempt{by(Silent, netip.AddrPort{}), by(Silent, netip.AddrPort{}), by(Silent, netip.AddrPort{})}
				}
				results = append(results, x.Judge(met, true))
			}
		}
	}
	r := NewReport("Services of all kinds", results, 12)
	r.Untested = []Reason{{"node-3", "pod pod-1 waits: ErrImagePull: not found, after 2m0s"}}
	return r
}

// TestReportOfCluster: 18.16, 18.18. The page shows what the command prints, and a reader of JUnit finds each node.
func TestReportOfCluster(t *testing.T) {
	r := clusterReport()
	var text, all, xml bytes.Buffer
	if err := errors.Join(r.Print(&text, false, false), r.Print(&all, true, false), r.JUnit(&xml)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n```\n"+text.String()+"```\n") {
		t.Errorf("docs/kubectl.md has no block with\n%s", &text)
	}
	if n := strings.Count(all.String(), "\npassed "); n != r.Passed || strings.Contains(text.String(), "\npassed ") {
		t.Errorf("%d of %d cases that pass are listed\n%s\n%s", n, r.Passed, &all, &text)
	}
	suites, err := junit.Ingest(xml.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]junit.Totals)
	for _, s := range suites {
		counts[s.Name[strings.LastIndex(s.Name, " ")+1:]] = s.Totals
	}
	if n := counts["node-7"]; n.Tests != 6 || n.Failed != 2 || n.Skipped != 1 || counts["node-1"].Failed != 0 || counts["node-3"].Error != 1 {
		t.Errorf("JUnit has %+v\n%s", counts, &xml)
	}
	if r.Complete() || r.Failed != 2 {
		t.Errorf("%d failed", r.Failed)
	}
}
