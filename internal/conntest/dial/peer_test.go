package dial

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"golang.org/x/sys/unix"
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
func runPeer(t *testing.T) (*Peer, *conntest.Remote) {
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
	r := &conntest.Remote{Transport: way, Token: p.Token}
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
	list := []conntest.Dial{
		{Protocol: "tcp", To: netip.AddrPortFrom(four, p.Serve), Most: 9, Endpoints: 1, Learns: conntest.Answers, Wait: time.Minute},
		{Protocol: "udp", To: netip.AddrPortFrom(six, p.Serve), Most: 2, Learns: conntest.Answers, Wait: time.Minute},
		{Protocol: "tcp", To: nothing, Most: 9, Learns: conntest.Answers, Wait: time.Minute},
		{Protocol: "udp", To: nothing, Most: 1, Refused: true, Learns: conntest.Outcomes, Wait: time.Minute},
		{Protocol: "tcp", To: netip.MustParseAddrPort(other.Addr().String()), Most: 9, Learns: conntest.Answers, Wait: time.Minute},
		{Protocol: "tcp", To: netip.MustParseAddrPort(other.Addr().String()), Most: 1, Learns: conntest.Outcomes, Wait: time.Minute},
		{Protocol: "sctp", To: nothing, Most: 9, Learns: conntest.Outcomes, Wait: time.Minute},
	}
	sctp, associations := conntest.Refused, conntest.Failures
	if !netlab.HasSCTP() {
		sctp, associations = conntest.Unsupported, 1
	}
	want := []struct {
		n       int
		outcome conntest.Outcome
		met     netip.AddrPort
	}{
		{conntest.LeastConnections, conntest.Answered, list[0].To}, {2, conntest.Answered, list[1].To}, {conntest.Failures, conntest.Refused, netip.AddrPort{}}, {1, conntest.Refused, netip.AddrPort{}},
		{conntest.Failures, conntest.Failed, netip.AddrPort{}}, {1, conntest.Answered, netip.AddrPort{}},
		{associations, sctp, netip.AddrPort{}},
	}
	got := make([]*conntest.Dialled, len(list))
	if err := r.Dial(t.Context(), list, func(d *conntest.Dialled) { got[d.Index] = d }); err != nil {
		t.Fatal(err)
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
	stranger := &conntest.Remote{Transport: r.Transport, Token: "guess"}
	if err := stranger.Dial(t.Context(), list, func(*conntest.Dialled) { t.Error("a stranger has an answer") }); err == nil || !strings.Contains(err.Error(), "401") {
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
	if _, err := client.Read(make([]byte, conntest.MaxAnswer)); err != nil {
		t.Fatalf("wait for the answer to an empty datagram: %v", err)
	}
	// Datagrams are answered in their order, so that an answer to the first one would be here by now.
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var answer error
	if err := raw.Read(func(fd uintptr) bool {
		_, _, answer = unix.Recvfrom(int(fd), make([]byte, conntest.MaxAnswer), unix.MSG_DONTWAIT)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(answer, unix.EAGAIN) {
		t.Errorf("an answer is answered (%v)", answer)
	}
}

// TestPeerResolves: 18.25. A peer resolves a name in its own network.
func TestPeerResolves(t *testing.T) {
	_, r := runPeer(t)
	var got *conntest.Dialled
	list := []conntest.Dial{{Protocol: conntest.DNS, HostName: "127.0.0.1", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}
	if err := r.Dial(t.Context(), list, func(d *conntest.Dialled) { got = d }); err != nil {
		t.Fatal(err)
	}
	if got.Error != "" || len(got.Attempts) != 1 || got.Attempts[0].Outcome != conntest.Answered || len(got.Attempts[0].Addresses) != 1 || got.Attempts[0].Addresses[0] != list[0].Addresses[0] {
		t.Errorf("%+v", got)
	}
}
