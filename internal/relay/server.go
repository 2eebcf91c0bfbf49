// Package relay accepts the connections that rules redirect to this process, and makes a second
// one to a server for each: for Services of files that ask for it. The server may be on this
// machine, another one takes the connection if the first one refuses, and a header may name the
// client.
package relay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/splice"
)

// Config has the parts and settings of a [Server].
type Config struct {
	// Relay returns how connections to a frontend are relayed at present; false: they are not.
	Relay func(model.Frontend) (model.Relayed, bool)
	// Closes reports that established connections to servers that are gone end, unless their
	// Service keeps them.
	Closes bool
	// Store keeps the listeners for the next process; nil: nothing does.
	Store Store
	// Connections is how many there may be at the same time.
	Connections int
	Log         *slog.Logger
}

// Store keeps listeners beyond the end of the process.
type Store interface {
	// Take returns the listener that the last process has left under a name; nil: there is none.
	Take(name string) *net.TCPListener
	Keep(name string, l *net.TCPListener) error
	// Forget closes what is kept under a name.
	Forget(name string) error
}

// Server listens while a frontend is relayed. Established connections stay until one end closes
// them, or the process ends, even if their Service goes.
type Server struct {
	Config
	counts  counts
	updated bool
	wake    chan struct{}
	ctx     context.Context
	active  sync.WaitGroup
	warned  atomic.Int64 // when the last warning about a limit was written

	mu        sync.Mutex
	frontends map[model.Frontend]*frontend // that are relayed
	listeners map[model.Family]*net.TCPListener
	failures  map[model.Family]string // why one cannot listen
	kept      map[model.Family]bool   // by the store, as far as this process knows
}

// frontend is a relayed one.
type frontend struct {
	model.Frontend
	turn        atomic.Uint64            // of connections in turn
	connections map[*connection]struct{} // guarded by the lock of the server
}

// New returns a server that does not listen yet.
func New(c Config) *Server {
	return &Server{
		Config: c, wake: make(chan struct{}, 1),
		frontends: make(map[model.Frontend]*frontend), listeners: make(map[model.Family]*net.TCPListener),
		failures: make(map[model.Family]string), kept: map[model.Family]bool{model.IPv4: true, model.IPv6: true},
	}
}

// Update follows the changes of a successful sync. It does not wait for the port to be opened;
// [Server.Run] opens it. Calls must not overlap.
func (s *Server) Update(changes []model.RouteChange) {
	any := !s.updated // what the last process has left may not be needed
	s.updated = true
	for i := range changes {
		c := &changes[i]
		was, is := c.Old != nil && c.Old.Relayed(), c.New != nil && c.New.Relayed()
		if (was || is) && c.Frontend.Protocol == model.TCP { // not an echo request
			s.update(c, is)
			any = true
		}
	}
	if any {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *Server) update(c *model.RouteChange, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frontends[c.Frontend]
	switch {
	case is && f == nil:
		s.frontends[c.Frontend] = newFrontend(c.Frontend)
		return
	case f == nil:
		return
	case !is:
		delete(s.frontends, c.Frontend)
	}
	route, serving := c.Old, []model.Endpoint(nil)
	if is {
		route, serving = c.New, c.New.Choice.Serving
	}
	if route.Service.Extra().OnFailure.Closes(s.Closes) {
		f.close(serving)
	}
}

func newFrontend(at model.Frontend) *frontend {
	return &frontend{Frontend: at, connections: make(map[*connection]struct{})}
}

// close ends connections to all but some servers, which are sorted. The caller holds the lock.
func (f *frontend) close(but []model.Endpoint) {
	for c := range f.connections {
		_, serves := slices.BinarySearchFunc(but, c.to, func(e model.Endpoint, a netip.AddrPort) int { return e.Address().Compare(a) })
		if c.to.IsValid() && !serves {
			c.pair.Reset()
		}
	}
}

// Run opens and closes the port until ctx ends, then closes it and all connections.
func (s *Server) Run(ctx context.Context) {
	s.ctx = ctx
	defer s.close()
	splice.Open(ctx, s.wake, splice.FirstRetry, s.open)
}

// open listens in the families of relayed frontends, and in no others. It reports whether that
// succeeded.
func (s *Server) open() (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make(map[model.Family]bool)
	for f := range s.frontends {
		wanted[model.FamilyOf(f.Address)] = true
	}
	ok = true
	for _, f := range model.Families {
		l := s.listeners[f]
		switch {
		case !wanted[f] && l != nil:
			l.Close()
			delete(s.listeners, f)
			s.forget(f)
		case !wanted[f]:
			delete(s.failures, f)
			s.forget(f)
		case l == nil:
			ok = s.openFamily(f) && ok
		}
	}
	return ok
}

// nameOf returns the name of a listener in the store.
func nameOf(f model.Family) string { return "relay-" + f.String() }

// forget has the store forget a listener that is not needed.
func (s *Server) forget(f model.Family) {
	if !s.kept[f] || s.Store == nil {
		return
	}
	s.kept[f] = false
	if err := s.Store.Forget(nameOf(f)); err != nil {
		s.Log.Warn("the port of the relay stays open", "family", f, "error", err)
	}
}

// listener returns the listener of the last process, or opens one.
func (s *Server) listener(f model.Family) (*net.TCPListener, error) {
	if s.Store == nil {
		return listen(f)
	}
	if l := s.Store.Take(nameOf(f)); l != nil {
		return l, nil
	}
	l, err := listen(f)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Keep(nameOf(f), l); err != nil {
		s.Log.Warn("connections to relayed Balances will be refused during a restart", "family", f, "error", err)
	}
	s.kept[f] = true
	return l, nil
}

func (s *Server) openFamily(f model.Family) bool {
	l, err := s.listener(f)
	if err != nil {
		if text := err.Error(); s.failures[f] != text {
			s.failures[f] = text
			s.Log.Error("connections to relayed Balances are refused; retrying", "family", f, "error", err)
		}
		return false
	}
	if s.failures[f] != "" {
		delete(s.failures, f)
		s.Log.Info("connections are relayed again", "family", f)
	}
	s.listeners[f] = l
	s.active.Go(func() { s.accept(l) })
	return true
}

// close closes the port, and waits for the end of all connections, whose context has ended.
func (s *Server) close() {
	s.mu.Lock()
	for f, l := range s.listeners {
		l.Close()
		delete(s.listeners, f)
	}
	s.mu.Unlock()
	s.active.Wait()
}

// Problems says what keeps connections from being relayed.
func (s *Server) Problems() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, text := range s.failures {
		out = append(out, fmt.Sprintf("connections to relayed Balances are refused over %s: %s", f, text))
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

// listen listens at all addresses: the rules redirect to the one at which the packet arrives.
// Multipath TCP, Go's default, takes memory that few clients have a use for.
func listen(f model.Family) (*net.TCPListener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	network := map[model.Family]string{model.IPv4: "tcp4", model.IPv6: "tcp6"}[f]
	l, err := c.Listen(context.Background(), network, netip.AddrPortFrom(model.Wildcard(f), model.RelayPort).String())
	if err != nil {
		return nil, fmt.Errorf("listen on port %d, which the rules use: %w", model.RelayPort, cmp.Or(cause(err), err))
	}
	return l.(*net.TCPListener), nil
}

func dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
