package conntest

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/joshdk/go-junit"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

var (
	first, second = netip.MustParseAddrPort("10.1.1.2:8080"), netip.MustParseAddrPort("10.1.2.2:8080")
	client, node  = netip.MustParseAddr("198.18.255.254"), netip.MustParseAddr("10.1.1.1")
)

func forward(to netip.AddrPort, share float64) Expected {
	return Expected{Verdict: explain.Forward, Endpoint: to, Share: share}
}

// caseOf is a case of TCP from a client beside the machine.
func caseOf(p Prediction) *Case {
	f := &served.Frontend{
		Frontend: model.Frontend{Address: netip.MustParseAddr("10.96.0.10"), Protocol: model.TCP, Port: 80},
		Port:     model.PortName{Service: model.ServiceName{Namespace: "default", Name: "web"}, Port: "http", Protocol: model.TCP},
	}
	c := New(f, netip.MustParseAddrPort("10.96.0.10:80"), Namespace)
	c.Expected = p
	return c
}

func by(o Outcome, endpoint netip.AddrPort) Attempt { return Attempt{Outcome: o, Endpoint: endpoint} }

var (
	both    = Prediction{Outcomes: []Expected{forward(first, 0.5), forward(second, 0.5)}}
	denied  = Prediction{Outcomes: []Expected{{Verdict: explain.Drop, Reason: "the client is denied", Share: 1}}}
	refused = Prediction{Outcomes: []Expected{{Verdict: explain.Reject, Reason: "no endpoints", Share: 1}}}
	sticky  = Prediction{Outcomes: both.Outcomes, AffinitySeconds: 600}
	masked  = Prediction{Outcomes: []Expected{{Verdict: explain.Forward, Endpoint: first, Share: 1, Masqueraded: true}}}
	kept    = Prediction{Outcomes: []Expected{forward(first, 1)}}
	seen    = func(source netip.Addr) Attempt {
		return Attempt{Outcome: Answered, Endpoint: first, Source: source, Client: client}
	}
)

// 12.96, 12.98: which connections are as predicted, and what is said about others.
func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name     string
		expected Prediction
		attempts []Attempt
		complete bool
		change   func(*Case)
		why      string // part of the reasons; empty: it passes
	}{
		{name: "both endpoints answer", expected: both, attempts: []Attempt{by(Answered, first), by(Answered, second)}, complete: true},
		{name: "one has none", expected: both, attempts: []Attempt{by(Answered, first)}, complete: true, why: "endpoint 10.1.2.2:8080 got none of 1 connections, and its share is 50 %"},
		{name: "one has none, of few", expected: both, attempts: []Attempt{by(Answered, first)}},
		{name: "other endpoint", expected: kept, attempts: []Attempt{by(Answered, second)}, why: "answered by 10.1.2.2:8080, which is not an endpoint"},
		{name: "refused by an endpoint", expected: both, attempts: []Attempt{by(Answered, first), by(Refused, second)}, why: "1 of 2 connections: refused at endpoint 10.1.2.2:8080"},
		{name: "refused", expected: both, attempts: []Attempt{by(Refused, netip.AddrPort{})}, why: "refused"},
		{name: "refused as it should be", expected: refused, attempts: []Attempt{by(Refused, netip.AddrPort{})}},
		{name: "refused by an endpoint in place of the rules", expected: refused, attempts: []Attempt{by(Refused, first)}, why: "refused at endpoint"},
		{name: "denied", expected: denied, attempts: []Attempt{by(Silent, netip.AddrPort{})}},
		{name: "denied, and answered", expected: denied, attempts: []Attempt{by(Answered, first)}, why: "answered by 10.1.1.2:8080"},
		{name: "denied, and refused", expected: denied, attempts: []Attempt{by(Refused, netip.AddrPort{})}, why: "refused"},
		{name: "no answer of an endpoint", expected: kept, attempts: []Attempt{by(Silent, first)}, why: "no answer at endpoint 10.1.1.2:8080"},
		{name: "denied, and lost at an endpoint", expected: denied, attempts: []Attempt{by(Silent, first)}, why: "no answer at endpoint"},
		{name: "datagram", expected: kept, attempts: []Attempt{by(Sent, first)}},
		{name: "no route", expected: kept, attempts: []Attempt{{Outcome: Failed, Error: "network is unreachable"}}, why: "network is unreachable"},
		{name: "affinity", expected: sticky, attempts: []Attempt{by(Answered, first), by(Answered, first)}, complete: true, why: "got none"},
		{name: "affinity, not complete", expected: sticky, attempts: []Attempt{by(Answered, first), by(Answered, first)}},
		{name: "affinity broken", expected: sticky, attempts: []Attempt{by(Answered, first), by(Answered, second)}, why: "one client met 2 endpoints"},
		{name: "address kept", expected: kept, attempts: []Attempt{seen(client)}},
		{name: "address not kept", expected: kept, attempts: []Attempt{seen(node)}, why: "sees the client as 10.1.1.1, and its address should be kept"},
		{name: "masqueraded", expected: masked, attempts: []Attempt{seen(node)}},
		{name: "not masqueraded", expected: masked, attempts: []Attempt{seen(client)}, why: "should be masqueraded"},
		{name: "the node masqueraded with its own address", expected: masked, attempts: []Attempt{seen(client)}, change: func(c *Case) { c.From = Host }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := caseOf(test.expected)
			if test.change != nil {
				test.change(c)
			}
			r := c.Judge(test.attempts, test.complete)
			if text := strings.Join(r.Reasons, "\n"); (r.State == Passed) != (test.why == "") || !strings.Contains(text, test.why) {
				t.Errorf("%s: %q, want %q", r.State, text, test.why)
			}
		})
	}
}

// TestUnsupported: 15.12. A case whose protocol the kernel of the client has no sockets of is skipped, with the reason.
func TestUnsupported(t *testing.T) {
	c := caseOf(both)
	c.Protocol = "sctp"
	r := c.Judge([]Attempt{{Outcome: Unsupported}}, true)
	if r.State != NotTried || r.Connections != 0 || len(r.Reasons) != 1 || r.Reasons[0] != "the kernel of the client has no sockets of sctp" {
		t.Errorf("%+v", r)
	}
}

// 12.96: how many connections it takes.
func TestConnections(t *testing.T) {
	rare := Prediction{Outcomes: []Expected{forward(first, 0.99), forward(second, 0.01)}}
	limited := Prediction{Outcomes: both.Outcomes, Limits: []string{"10 connections"}}
	for _, test := range []struct {
		name string
		of   Prediction
		most int
		all  bool
	}{
		{"two endpoints", both, 24, true}, {"one", kept, LeastConnections, false}, {"none", denied, 1, false},
		{"affinity", sticky, LeastConnections, false}, {"a small share", rare, mostConnections, false}, {"limits", limited, 1, false},
	} {
		if most, all := test.of.Connections(); most != test.most || all != test.all {
			t.Errorf("%s: %d, %t, want %d, %t", test.name, most, all, test.most, test.all)
		}
	}
}

// report has a case of each state, with a name that no terminal or XML should act on.
func report() *Report {
	hostile := caseOf(kept)
	hostile.Service = "default/web:\x1b[31m<http>&"
	skipped := caseOf(kept)
	skipped.Skip = "not tried here"
	return NewReport("default/web", []*Result{
		caseOf(denied).Judge([]Attempt{by(Silent, netip.AddrPort{})}, true),
		skipped.Judge(nil, false),
		hostile.Judge([]Attempt{by(Silent, first)}, true),
	}, 1.5)
}

// 12.96: text and JSON.
func TestReport(t *testing.T) {
	r := report()
	if r.Passed != 1 || r.Failed != 1 || r.Skipped != 1 || r.Cases[0].State != NotPassed {
		t.Errorf("the report is %+v", r)
	}
	var text, document bytes.Buffer
	if err := r.Print(&text, true, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"default/web: 1 passed, 1 failed, 1 skipped", "no answer: the client is denied", "no answer at endpoint 10.1.1.2:8080", "skipped: default/web:http, ClusterIP tcp 10.96.0.10:80 from namespace",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
	if strings.ContainsRune(text.String(), '\x1b') {
		t.Errorf("the text has an escape sequence:\n%q", &text)
	}
	if err := terminal.JSON(&document, r); err != nil || !strings.Contains(document.String(), `"verdict": "drop"`) {
		t.Errorf("JSON: %v\n%s", err, &document)
	}
}

// 12.96: a reader of JUnit understands the XML.
func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := report().JUnit(&b); err != nil {
		t.Fatal(err)
	}
	suites, err := junit.Ingest(b.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	if len(suites) != 1 || len(suites[0].Tests) != 3 {
		t.Fatalf("read %d suites:\n%s", len(suites), &b)
	}
	var states []junit.Status
	for _, test := range suites[0].Tests {
		states = append(states, test.Status)
	}
	if want := []junit.Status{junit.StatusFailed, junit.StatusPassed, junit.StatusSkipped}; !slices.Equal(states, want) {
		t.Errorf("the states are %v, want %v", states, want)
	}
	failure, ok := suites[0].Tests[0].Error.(junit.Error)
	if !ok || !strings.Contains(failure.Message, "no answer at endpoint 10.1.1.2:8080") || !strings.Contains(suites[0].Tests[0].Name, "<http>&") {
		t.Errorf("the failure is %+v of %q", suites[0].Tests[0].Error, suites[0].Tests[0].Name)
	}
}

// TestShareOfNothing: an endpoint that no new connection should reach is not waited for.
func TestShareOfNothing(t *testing.T) {
	p := Prediction{Outcomes: []Expected{forward(first, 1), forward(second, 0)}}
	most, all := p.Connections()
	if most < LeastConnections || most > mostConnections {
		t.Errorf("at most %d connections", most)
	}
	attempts := slices.Repeat([]Attempt{by(Answered, first)}, most)
	if r := caseOf(p).Judge(attempts, all); r.State != Passed {
		t.Errorf("%s: %q", r.State, r.Reasons)
	}
}
