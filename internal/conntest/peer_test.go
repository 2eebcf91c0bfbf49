package conntest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/joshdk/go-junit"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// freePort returns a port of localhost where nothing listens.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// runPeer runs a peer on localhost until the test ends.
func runPeer(t *testing.T) (*Peer, *Remote) {
	t.Helper()
	p := &Peer{Control: freePort(t), Serve: freePort(t), Token: "secret", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the peer ended with %v", err)
		}
	})
	dialer := &net.Dialer{}
	way := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.Control).String())
	}}
	t.Cleanup(way.CloseIdleConnections)
	r := &Remote{Transport: way, Token: p.Token}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := r.Sources(t.Context(), nil)
		if err == nil {
			return p, r
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestPeers: 18.16. A peer answers with the endpoint and the client that it sees, and one that connects says what
// happened, also where nothing listens and where another server answers. Without the token it does nothing.
func TestPeers(t *testing.T) {
	p, r := runPeer(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		for c, err := other.Accept(); err == nil; c, err = other.Accept() {
			_, _ = c.Write([]byte("hello\n"))
			_ = c.Close()
		}
	}()
	four, six := p.Addresses[0], p.Addresses[1]
	nothing := netip.AddrPortFrom(four, freePort(t))
	list := []Dial{
		{Protocol: "tcp", To: netip.AddrPortFrom(four, p.Serve), Most: 9, Endpoints: 1, Learns: Answers, Wait: time.Minute},
		{Protocol: "udp", To: netip.AddrPortFrom(six, p.Serve), Most: 2, Learns: Answers, Wait: time.Minute},
		{Protocol: "tcp", To: nothing, Most: 9, Learns: Answers, Wait: time.Minute},
		{Protocol: "udp", To: nothing, Most: 1, Refused: true, Learns: Outcomes, Wait: time.Minute},
		{Protocol: "tcp", To: netip.MustParseAddrPort(other.Addr().String()), Most: 9, Learns: Answers, Wait: time.Minute},
		{Protocol: "tcp", To: netip.MustParseAddrPort(other.Addr().String()), Most: 1, Learns: Outcomes, Wait: time.Minute},
		{Protocol: "sctp", To: nothing, Most: 9, Learns: Outcomes, Wait: time.Minute},
	}
	got := make([]*Dialled, len(list))
	if err := r.Dial(t.Context(), list, func(d *Dialled) { got[d.Index] = d }); err != nil {
		t.Fatal(err)
	}
	sctp, associations := Refused, failures
	if !netlab.HasSCTP() {
		sctp, associations = Unsupported, 1
	}
	want := []struct {
		n       int
		outcome Outcome
		met     netip.AddrPort
	}{
		{leastConnections, Answered, list[0].To}, {2, Answered, list[1].To}, {failures, Refused, netip.AddrPort{}}, {1, Refused, netip.AddrPort{}},
		{failures, Failed, netip.AddrPort{}}, {1, Answered, netip.AddrPort{}},
		{associations, sctp, netip.AddrPort{}},
	}
	for i, w := range want {
		if got[i] == nil || got[i].Error != "" || len(got[i].Attempts) != w.n {
			t.Errorf("%d: got %+v, want %d attempts", i, got[i], w.n)
			continue
		}
		for _, a := range got[i].Attempts {
			if a.Outcome != w.outcome || a.Endpoint != w.met || w.met.IsValid() && (a.Source != w.met.Addr() || a.Client != a.Source) {
				t.Errorf("%d: got %+v, want %+v", i, a, w)
			}
		}
	}
	if from, err := r.Sources(t.Context(), []netip.Addr{four, six}); err != nil || len(from) != 2 || from[0] != four || from[1] != six {
		t.Errorf("the sources are %v, %v", from, err)
	}
	stranger := &Remote{Transport: r.Transport, Token: "guess"}
	if err := stranger.Dial(t.Context(), list, func(*Dialled) { t.Error("a stranger has an answer") }); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a stranger: %v", err)
	}
}

// TestPeersAnswerQuestionsOnly: 18.16. A peer does not answer an answer: one datagram with a forged source
// would make two peers answer each other without end.
func TestPeersAnswerQuestionsOnly(t *testing.T) {
	p, _ := runPeer(t)
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Addresses[0], p.Serve))
	dial := func() *net.UDPConn {
		c, err := net.DialUDP("udp", nil, to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	peer, client := dial(), dial()
	if _, err := peer.Write([]byte("10.0.0.1:8080 10.0.0.2:8080\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(nil); err != nil {
		t.Fatal(err)
	}
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, maxAnswer)); err != nil {
		t.Fatalf("wait for the answer to an empty datagram: %v", err)
	}
	// Datagrams are answered in their order, so that an answer to the first one would be here by now.
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var answer error
	if err := raw.Read(func(fd uintptr) bool {
		_, _, answer = unix.Recvfrom(int(fd), make([]byte, maxAnswer), unix.MSG_DONTWAIT)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(answer, unix.EAGAIN) {
		t.Errorf("an answer is answered (%v)", answer)
	}
}

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
		{"a silent server of UDP", func(c *Case) { c.Protocol = "udp"; c.protocol = model.UDP }, Outcomes, []Attempt{by(Silent, netip.AddrPort{})}, NotTried, "a server need not answer"},
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
				case len(p.forwards()) == 0 && p.rejects():
					met, x.Service = []Attempt{by(Refused, netip.AddrPort{})}, "no-endpoints:tcp"
				case len(p.forwards()) == 0:
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
