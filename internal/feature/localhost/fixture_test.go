package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const patience = await.Patience

var loopback = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("127.0.0.1"), model.IPv6: netip.IPv6Loopback()}

// fixture is a server on a node, with an endpoint in place of the rules.
type fixture struct {
	*Server
	t    *testing.T
	host *netlab.Host
	log  netlab.LogBuffer
	end  func() // ends Run, and waits for it

	refuse  map[model.Family]error // why no port of a family can be opened
	refused atomic.Int32           // how often that was tried

	mu       sync.Mutex
	targets  map[uint16]netip.AddrPort // by NodePort
	failed   []string
	accepted chan *net.TCPConn // by the endpoint
}

// newFixture starts a server with an endpoint that hands over its connections. change
// changes the server before it starts.
func newFixture(t *testing.T, change func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{t: t, host: netlab.TestLab(t, 0).Node, targets: make(map[uint16]netip.AddrPort), accepted: make(chan *net.TCPConn, 100)}
	f.setLimits(descriptors.LocalhostLimits{Listeners: 1000, Connections: 100, OfPort: 50})
	if change != nil {
		change(f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	f.end = func() { cancel(); <-done }
	t.Cleanup(func() {
		if f.end(); t.Failed() {
			fmt.Fprintf(t.Output(), "log of the server:\n%s\n", f.log.String())
		}
	})
	return f
}

// setLimits gives the fixture a new server with some limits.
func (f *fixture) setLimits(limits descriptors.LocalhostLimits) {
	f.Server = newServer(nodeOf(served{f: f}, &f.log), f, limits, f)
	f.proxy.Retry = 5 * time.Millisecond
}

// nodeOf returns a node that serves something; nil: nothing.
func nodeOf(s feature.Serving, log io.Writer) *feature.Node {
	n := &feature.Node{ObjectLog: slog.New(slog.NewTextHandler(log, nil))}
	if s != nil {
		n.Serve(s)
	}
	return n
}

// LocalhostFailed implements [recorder].
func (f *fixture) LocalhostFailed(s model.ServiceName, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, s.String()+": "+err.Error())
}

// Listen implements [tcpproxy.Sockets].
func (f *fixture) Listen(at netip.AddrPort, keepAlive time.Duration) (*net.TCPListener, error) {
	if err := f.refuse[model.FamilyOf(at.Addr())]; err != nil {
		f.refused.Add(1)
		return nil, err
	}
	return socketsOf{f.host}.Listen(at, keepAlive)
}

// Dial implements [tcpproxy.Sockets].
func (f *fixture) Dial(ctx context.Context, to netip.AddrPort, hops uint8) (*net.TCPConn, error) {
	return socketsOf{f.host}.Dial(ctx, to, hops)
}

// socketsOf are the sockets of a node.
type socketsOf struct{ node *netlab.Host }

func (s socketsOf) Listen(at netip.AddrPort, keepAlive time.Duration) (l *net.TCPListener, err error) {
	err = s.node.Do(func() error { l, err = tcpproxy.Kernel{}.Listen(at, keepAlive); return err })
	return l, err
}

func (s socketsOf) Dial(ctx context.Context, to netip.AddrPort, hops uint8) (c *net.TCPConn, err error) {
	err = s.node.Do(func() error { c, err = tcpproxy.Kernel{}.Dial(ctx, to, hops); return err })
	return c, err
}

// served is what the node of a fixture serves.
type served struct {
	feature.Serving
	f *fixture
}

func (s served) BehindLocalhost(to model.Frontend) (netip.AddrPort, bool) { return s.f.target(to) }

func (f *fixture) target(to model.Frontend) (netip.AddrPort, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.targets[to.Port]
	return t, ok
}

// endpoint makes a NodePort lead to a new endpoint, whose connections are in f.accepted.
func (f *fixture) endpoint(port uint16) {
	f.t.Helper()
	l, err := f.host.Listen("tcp4", f.host.IPv4.String()+":0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { l.Close() })
	f.to(port, netip.MustParseAddrPort(l.Addr().String()))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.accepted <- c.(*net.TCPConn)
		}
	}()
}

func (f *fixture) to(port uint16, target netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets[port] = target
}

// route returns the route of a NodePort on localhost, of a Service with that many
// endpoints.
func route(family model.Family, port uint16, endpoints int) *model.Route {
	c := &model.Choice{Known: endpoints}
	for i := range endpoints {
		h := &model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Ready: true}
		c.Cluster = append(c.Cluster, model.Endpoint{Host: h, Port: 80})
	}
	return &model.Route{
		Frontend: at(family, port), Kind: model.NodePort, Choice: c,
		Service: &model.Service{Name: model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%d", port)}},
		Port:    &model.ServicePort{Name: "http", Protocol: model.TCP, Port: 80, NodePort: port},
	}
}

func at(family model.Family, port uint16) model.Frontend {
	return model.Frontend{Address: loopback[family], Protocol: model.TCP, Port: port}
}

// serve updates the server with NodePorts of Services with endpoints.
func (f *fixture) serve(family model.Family, ports ...uint16) { f.set(family, 1, ports...) }

func (f *fixture) set(family model.Family, endpoints int, ports ...uint16) {
	var changes []model.RouteChange
	for _, p := range ports {
		changes = append(changes, model.RouteChange{Frontend: at(family, p), New: route(family, p, endpoints)})
	}
	f.Update(changes)
}

func (f *fixture) remove(family model.Family, port uint16) {
	f.Update([]model.RouteChange{{Frontend: at(family, port), Old: route(family, port, 1)}})
}

// listening waits until that many ports are open in a family.
func (f *fixture) listening(family model.Family, want int) {
	f.t.Helper()
	netlab.Eventually(f.t, patience, func() error {
		if got := f.Counts().Listeners[family]; got != want {
			return fmt.Errorf("%d listeners for %s, want %d", got, family, want)
		}
		return nil
	})
}

// connect connects a client to a NodePort.
func (f *fixture) connect(family model.Family, port uint16) (*net.TCPConn, error) {
	c, err := f.host.DialContext(context.Background(), "tcp", netip.AddrPortFrom(loopback[family], port).String())
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn), nil
}

// pair connects a client, and returns both ends.
func (f *fixture) pair(family model.Family, port uint16) (client, endpoint *net.TCPConn) {
	f.t.Helper()
	client, err := f.connect(family, port)
	if err != nil {
		f.t.Fatal(err)
	}
	endpoint = await.Receive(f.t, f.accepted, "connection of the endpoint")
	f.t.Cleanup(func() { endpoint.Close() })
	endpoint.SetDeadline(time.Now().Add(patience))
	return client, endpoint
}

// resets checks that a client's connection is reset, while connecting or then.
func (f *fixture) resets(port uint16) {
	f.t.Helper()
	c, err := f.connect(model.IPv4, port)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		f.t.Errorf("port %d: %v", port, err)
	}
}

// carries checks that text written at one end arrives at the other one.
func carries(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("%q: %v", got, err)
	}
}

// counted waits until a number of connections had a result.
func (f *fixture) counted(r tcpproxy.Result, want uint64) {
	f.t.Helper()
	netlab.Eventually(f.t, patience, func() error {
		if got := f.Counts().Total[r]; got != want {
			return fmt.Errorf("%s: %d, want %d", r, got, want)
		}
		return nil
	})
}

// open waits until that many connections are open.
func (f *fixture) open(want int64) {
	f.t.Helper()
	netlab.Eventually(f.t, patience, func() error {
		if got := f.Counts().Connections; got != want {
			return fmt.Errorf("%d connections, want %d", got, want)
		}
		return nil
	})
}

// logs waits until a text is in the log that many times.
func (f *fixture) logs(want int, text string) {
	f.t.Helper()
	netlab.Eventually(f.t, patience, func() error {
		if got := strings.Count(f.log.String(), text); got != want {
			return fmt.Errorf("%q is in the log %d times, want %d:\n%s", text, got, want, f.log.String())
		}
		return nil
	})
}
