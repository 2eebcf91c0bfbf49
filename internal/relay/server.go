// Package relay accepts the connections that rules redirect to this process, and makes a second
// one to a server for each: for Services of files that ask for it. The server may be on this
// machine, another one takes the connection if the first one refuses, and a header may name the
// client.
package relay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// Config has the parts and settings of a [Server].
type Config struct {
	// Relay returns how connections to a frontend are relayed at present; false: they are not.
	Relay func(model.Frontend) (model.Relayed, bool)
	// Closes reports that established connections to servers that are gone end, unless their
	// Service keeps them.
	Closes bool
	// Changed is called with the relayed Services when the port of a family begins or ceases to
	// fail.
	Changed func(...model.ServiceName)
	// Store keeps the listeners for the next process; nil: nothing does.
	Store Store
	// Connections is how many there may be at the same time.
	Connections int
	Log         *slog.Logger
}

// Store keeps files beyond the end of the process.
type Store interface {
	// Take returns the file that the last process has left under a name; nil: there is none.
	Take(name string) *os.File
	Keep(name string, f syscall.Conn) error
	// Forget closes what is kept under a name.
	Forget(name string) error
}

// Server listens while a frontend is relayed. Established connections stay until one end closes
// them, or the process ends, even if their Service goes.
type Server struct {
	Config
	counts  counts
	dial    func(ctx context.Context, to netip.AddrPort, hops uint8) (*net.TCPConn, error)
	updated bool
	wake    chan struct{}
	ctx     context.Context
	active  sync.WaitGroup
	warned  atomic.Int64 // when the last warning about a limit was written

	mu        sync.Mutex
	all       *shares // of all frontends
	frontends map[model.Frontend]*frontend
	doors     map[model.Family]*door
	failures  map[model.Family]string // why one cannot listen
	kept      map[model.Family]bool   // by the store, as far as this process knows
}

// frontend is a relayed one, or one that has connections: rules know a new one before Update.
type frontend struct {
	relayed     bool
	turn        atomic.Uint64            // of connections in turn
	connections map[*connection]struct{} // guarded by the lock of the server, as shares
	shares      *shares
}

// New returns a server that does not listen yet.
func New(c Config) *Server {
	return &Server{
		Config: c, dial: dial, all: newShares(c.Connections), wake: make(chan struct{}, 1),
		frontends: make(map[model.Frontend]*frontend), doors: make(map[model.Family]*door),
		failures: make(map[model.Family]string), kept: map[model.Family]bool{model.IPv4: true, model.IPv6: true},
	}
}

// Update follows the changes of a successful sync. It does not wait for the port to be opened;
// [Server.Run] opens it. Calls must not overlap, and Config.Relay knows the changes before.
func (s *Server) Update(changes []model.RouteChange) {
	changed := !s.updated // what the last process has left may not be needed
	s.updated = true
	s.mu.Lock()
	for i := range changes {
		if c := &changes[i]; c.Frontend.Protocol == model.TCP { // not an echo request
			changed = s.update(c) || changed
		}
	}
	s.mu.Unlock()
	if changed {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// update follows a change, and reports whether a frontend begins or ends to be relayed. The caller
// holds the lock.
func (s *Server) update(c *model.RouteChange) (changed bool) {
	is := c.New != nil && c.New.Relayed()
	f := s.frontends[c.Frontend]
	if f == nil && !is {
		return false
	}
	f = s.frontendAt(c.Frontend)
	changed, f.relayed = f.relayed != is, is
	route, serving := c.Old, []model.Endpoint(nil)
	if c.New != nil {
		route, serving = c.New, c.New.Choice.Serving
	}
	if route.Service.Extra().OnFailure.Closes(s.Closes) {
		f.close(serving)
	}
	s.tidy(c.Frontend, f)
	return changed
}

// frontendAt returns the frontend at an address, a new one if there is none. The caller holds the
// lock.
func (s *Server) frontendAt(at model.Frontend) *frontend {
	f := s.frontends[at]
	if f == nil {
		f = &frontend{connections: make(map[*connection]struct{}), shares: newShares(s.ofFrontend())}
		s.frontends[at] = f
	}
	return f
}

// tidy forgets a frontend that is not relayed and has no connection. The caller holds the lock.
func (s *Server) tidy(at model.Frontend, f *frontend) {
	if !f.relayed && len(f.connections) == 0 {
		delete(s.frontends, at)
	}
}

// close ends connections to all but some servers, which are sorted. Connections without a server
// get one of these. The caller holds the lock.
func (f *frontend) close(but []model.Endpoint) {
	for c := range f.connections {
		switch {
		case !c.to.IsValid():
			c.limited, c.allowed = true, but
		case !has(but, c.to):
			c.pair.Reset()
		}
	}
}

// has reports whether an address is that of one of the servers, which are sorted.
func has(servers []model.Endpoint, a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(servers, a, func(e model.Endpoint, a netip.AddrPort) int { return e.Address().Compare(a) })
	return found
}

// Run opens and closes the port until ctx ends, then closes it and all connections.
func (s *Server) Run(ctx context.Context) {
	s.ctx = ctx
	defer s.close()
	tcpproxy.Open(ctx, s.wake, tcpproxy.FirstRetry, s.open)
}

// open listens in the families of relayed frontends, and in no others. It reports whether that
// succeeded.
func (s *Server) open() (ok bool) {
	s.mu.Lock()
	before := maps.Clone(s.failures)
	ok = s.openFamilies()
	changed := !maps.Equal(before, s.failures)
	s.mu.Unlock()
	if changed && s.Changed != nil {
		s.Changed(s.services()...)
	}
	return ok
}

// services returns the Services whose connections are relayed.
func (s *Server) services() (out []model.ServiceName) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.frontends))
	s.mu.Unlock()
	for _, at := range all {
		if r, ok := s.Relay(at); ok && !slices.Contains(out, r.Service) {
			out = append(out, r.Service)
		}
	}
	return out
}

func (s *Server) openFamilies() (ok bool) {
	wanted := make(map[model.Family]bool)
	for at, f := range s.frontends {
		if f.relayed {
			wanted[model.FamilyOf(at.Address)] = true
		}
	}
	ok = true
	for _, f := range model.Families {
		d := s.doors[f]
		switch {
		case !wanted[f] && d != nil:
			d.close()
			delete(s.doors, f)
			s.forget(f)
		case !wanted[f]:
			delete(s.failures, f)
			s.forget(f)
		case d == nil:
			ok = s.openFamily(f) && ok
		}
	}
	return ok
}

func (s *Server) openFamily(f model.Family) bool {
	d, err := s.openDoor(f)
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
	saveRequests(d.listener)
	s.doors[f] = d
	s.active.Go(func() { s.accept(d.listener) })
	return true
}

// close closes the port, and waits for the end of all connections, whose context has ended.
func (s *Server) close() {
	s.mu.Lock()
	for f, d := range s.doors {
		d.close()
		delete(s.doors, f)
	}
	s.mu.Unlock()
	s.active.Wait()
}

// Problems says what keeps connections from being relayed.
func (s *Server) Problems() (out []string) {
	for _, f := range model.Families {
		if text := s.Failure(f); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// Failure returns why connections of a family are refused; empty: they are not.
func (s *Server) Failure(f model.Family) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures[f] == "" {
		return ""
	}
	return fmt.Sprintf("over %s: %s; nftproxy tries again every 30 seconds", f, s.failures[f])
}
