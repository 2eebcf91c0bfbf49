package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

var web = model.Frontend{Address: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}

// station is a server of the relay with a frontend, whose dials wait until the test lets them go.
type station struct {
	*Server
	tcpproxy.Kernel
	t       *testing.T
	dialled chan netip.AddrPort
	allow   chan struct{}
	route   *model.Route
}

// tcp returns a connection of a test, from both ends.
func tcp(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); other.Close() })
	return c.(*net.TCPConn), other
}

// Dial implements [tcpproxy.Sockets].
func (s *station) Dial(ctx context.Context, to netip.AddrPort, hops uint8) (*net.TCPConn, error) {
	s.dialled <- to
	<-s.allow
	return s.Kernel.Dial(ctx, to, hops)
}

// relays is a node that relays the connections of a station.
type relays struct {
	feature.Serving
	s *station
}

func (r relays) Relay(f model.Frontend) (model.Relayed, bool) {
	return model.Relayed{Servers: r.s.route.Choice.Cluster, Scheduler: model.RoundRobin, Timeout: time.Hour}, f == web
}

// newStation returns one with some servers.
func newStation(t *testing.T, connections int, use model.OnFailure, servers ...model.Endpoint) *station {
	t.Helper()
	s := &station{t: t, dialled: make(chan netip.AddrPort), allow: make(chan struct{})}
	n := &feature.Node{Config: new(config.Config), ObjectLog: slog.New(slog.DiscardHandler)}
	n.Serve(relays{s: s})
	s.Server = newServer(n, nil, connections, s)
	s.change(use, servers...)
	return s
}

// routeTo returns a route of the frontend.
func routeTo(relay model.RelayUse, use model.OnFailure, servers ...model.Endpoint) *model.Route {
	service := &model.Service{Extras: &model.Extras{Relay: relay, OnFailure: use}}
	servers = slices.SortedFunc(slices.Values(servers), func(a, b model.Endpoint) int { return a.Address().Compare(b.Address()) })
	return &model.Route{Frontend: web, Service: service, Choice: &model.Choice{Cluster: servers, Serving: servers}}
}

// change gives the frontend other servers.
func (s *station) change(use model.OnFailure, servers ...model.Endpoint) {
	old := s.route
	s.route = routeTo(model.PlainRelay, use, servers...)
	s.Update([]model.RouteChange{{Frontend: web, Old: old, New: s.route}})
}

// backend is a server that sends its name, and waits for the end.
func backend(t *testing.T, name string) model.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, name) //nolint:errcheck // the client of the test sees it
				io.Copy(io.Discard, c)  //nolint:errcheck // until its end
			}()
		}
	}()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	return model.Endpoint{Host: &model.Host{Address: at.Addr(), Weight: 1, Ready: true, Serving: true}, Port: at.Port()}
}

// read returns what a client reads of the name of a server.
func read(t *testing.T, c *net.TCPConn) (string, error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	name := make([]byte, 1)
	_, err := io.ReadFull(c, name)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the client waits for ever")
	}
	return string(name), err
}

// opens relays the connection of a client, whose first dial has begun.
func (s *station) opens() (client *net.TCPConn, first netip.AddrPort, ended chan struct{}) {
	client, near := tcp(s.t)
	ended = make(chan struct{})
	go func() { defer close(ended); s.proxy.Serve(s.t.Context(), web, near) }()
	return client, <-s.dialled, ended
}

// TestLeavesWhileDialled: 4.84. A server that fails or leaves while it is dialled serves the
// connection with onFailure: keep. With close another one does, or none if there is no other.
func TestLeavesWhileDialled(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	names := map[netip.AddrPort]string{a.Address(): "a", b.Address(): "b"}
	for _, c := range []struct {
		use     model.OnFailure
		servers []model.Endpoint
		served  bool
		other   bool // by the other server
	}{
		{model.KeepOnFailure, []model.Endpoint{a, b}, true, false},
		{model.CloseOnFailure, []model.Endpoint{a, b}, true, true},
		{model.CloseOnFailure, []model.Endpoint{a}, false, false},
	} {
		s := newStation(t, 4, c.use, c.servers...)
		client, first, ended := s.opens()
		s.change(c.use, slices.DeleteFunc(slices.Clone(c.servers), func(e model.Endpoint) bool { return e.Address() == first })...)
		s.allow <- struct{}{}
		want := first
		if c.other {
			want = <-s.dialled
			s.allow <- struct{}{}
		}
		switch name, err := read(t, client); {
		case !c.served && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("%s: %q, %v, want a reset", c.use, name, err)
		case c.served && (err != nil || name != names[want] || c.other == (want == first)):
			t.Errorf("%s with %d servers: %q serves, %v, and %q was dialled first", c.use, len(c.servers), name, err, names[first])
		}
		client.Close()
		<-ended
	}
}

// TestBeforeUpdate: 4.84. A connection that rules send before Update knows its frontend ends with
// its server, as later ones do.
func TestBeforeUpdate(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	s := newStation(t, 4, model.CloseOnFailure)
	s.Update([]model.RouteChange{{Frontend: web, Old: s.route}})
	s.route = routeTo(model.PlainRelay, model.CloseOnFailure, a)
	client, _, ended := s.opens()
	s.allow <- struct{}{}
	if name, err := read(t, client); err != nil || name != "a" {
		t.Fatal(name, err)
	}
	if s.proxy.Frontends()[web] {
		t.Error("a frontend is relayed before Update")
	}
	s.Update([]model.RouteChange{{Frontend: web, New: s.route}})
	s.change(model.CloseOnFailure, b)
	if _, err := read(t, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	<-ended
}

// TestLosesRelay: 4.84. Connections stay when their Balance is not relayed any more, and end when
// their server leaves later; nothing is left of the frontend then.
func TestLosesRelay(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	s := newStation(t, 4, model.CloseOnFailure, a)
	client, _, ended := s.opens()
	s.allow <- struct{}{}
	if name, err := read(t, client); err != nil || name != "a" {
		t.Fatal(name, err)
	}
	direct, moved := routeTo(model.NoRelay, model.CloseOnFailure, a), routeTo(model.NoRelay, model.CloseOnFailure, b)
	s.Update([]model.RouteChange{{Frontend: web, Old: s.route, New: direct}})
	if s.proxy.Frontends()[web] {
		t.Error("the frontend is relayed")
	}
	select {
	case <-ended:
		t.Fatal("the connection has ended with the relay")
	default:
	}
	s.Update([]model.RouteChange{{Frontend: web, Old: direct, New: moved}})
	if _, err := read(t, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	<-ended
	if len(s.proxy.Frontends()) > 0 {
		t.Errorf("%d frontends are left", len(s.proxy.Frontends()))
	}
}
