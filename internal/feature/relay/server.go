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
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/systemd"
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
	Store *systemd.Store
	// Connections is how many there may be at the same time.
	Connections int
	Log         *slog.Logger
}

// Server listens while a frontend is relayed.
type Server struct {
	Config
	proxy   *tcpproxy.Proxy
	updated bool

	mu       sync.Mutex
	doors    map[model.Family]*door
	failures map[model.Family]string // why one cannot listen
	kept     map[model.Family]bool   // by the store, as far as this process knows
}

// New returns a server that does not listen yet.
func New(c Config) *Server {
	s := &Server{
		Config: c, doors: make(map[model.Family]*door), failures: make(map[model.Family]string),
		kept: map[model.Family]bool{model.IPv4: true, model.IPv6: true},
	}
	s.proxy = tcpproxy.New(tcpproxy.Config{Router: s, Connections: c.Connections, OfFrontend: max(1, c.Connections/2), Log: c.Log})
	return s
}

// Update follows the changes of a successful sync. It does not wait for the port to be opened;
// [Server.Run] opens it. Calls must not overlap, and Config.Relay knows the changes before.
func (s *Server) Update(changes []model.RouteChange) {
	changed := !s.updated // what the last process has left may not be needed
	s.updated = true
	for i := range changes {
		if c := &changes[i]; c.Frontend.Protocol == model.TCP { // not an echo request
			changed = s.update(c) || changed
		}
	}
	if changed {
		s.proxy.Wake()
	}
}

// update follows a change, and reports whether a frontend begins or ends to be relayed.
func (s *Server) update(c *model.RouteChange) (changed bool) {
	changed = s.proxy.SetForwarded(c.Frontend, c.New != nil && c.New.Relayed())
	route, serving := c.Old, []model.Endpoint(nil)
	if c.New != nil {
		route, serving = c.New, c.New.Choice.Serving
	}
	if route.Service.Extra().OnFailure.Closes(s.Closes) {
		s.proxy.CloseOthers(c.Frontend, serving)
	}
	return changed
}

// Run opens and closes the port until ctx ends, then closes it and all connections.
func (s *Server) Run(ctx context.Context) { s.proxy.Run(ctx, s.open, s.closeDoors) }

// open listens in the families of relayed frontends, and in no others. It reports whether that
// succeeded.
func (s *Server) open(ctx context.Context) (ok bool) {
	s.mu.Lock()
	before := maps.Clone(s.failures)
	ok = s.openFamilies(ctx)
	changed := !maps.Equal(before, s.failures)
	s.mu.Unlock()
	if !changed || s.Changed == nil {
		return ok
	}
	var services []model.ServiceName
	for at := range s.proxy.Frontends() {
		if r, relayed := s.Relay(at); relayed && !slices.Contains(services, r.Service) {
			services = append(services, r.Service)
		}
	}
	s.Changed(services...)
	return ok
}

func (s *Server) openFamilies(ctx context.Context) (ok bool) {
	wanted := make(map[model.Family]bool)
	for at, relayed := range s.proxy.Frontends() {
		if relayed {
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
			ok = s.openFamily(ctx, f) && ok
		}
	}
	return ok
}

func (s *Server) openFamily(ctx context.Context, f model.Family) bool {
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
	s.proxy.Accept(ctx, d.listener, frontendOf)
	return true
}

func (s *Server) closeDoors() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, d := range s.doors {
		d.close()
		delete(s.doors, f)
	}
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

// Counts returns the numbers of relayed connections.
func (s *Server) Counts() tcpproxy.Counts {
	return s.proxy.Counts(tcpproxy.Forwarded, tcpproxy.Limited, tcpproxy.NoServer, tcpproxy.DialFailed, tcpproxy.NotRelayed, tcpproxy.Looped, tcpproxy.AcceptFailed)
}
