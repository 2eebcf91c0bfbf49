// Package relay accepts the connections that rules redirect to this process, and makes a second
// one to a server for each: for Services of files that ask for it. The server may be on this
// machine, another one takes the connection if the first one refuses, and a header may name the
// client.
package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/systemd"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// Server listens while a frontend is relayed.
type Server struct {
	node    *feature.Node
	store   *systemd.Store // keeps the listeners for the next process; nil: nothing does
	proxy   *tcpproxy.Proxy
	updated bool

	mu       sync.Mutex
	doors    map[model.Family]*door
	failures map[model.Family]string // why one cannot listen
	kept     map[model.Family]bool   // by the store, as far as this process knows
}

// newServer returns a server of at most so many connections at the same time that does not listen yet.
func newServer(n *feature.Node, store *systemd.Store, connections int, sockets tcpproxy.Sockets) *Server {
	s := &Server{
		node: n, store: store, doors: make(map[model.Family]*door), failures: make(map[model.Family]string),
		kept: map[model.Family]bool{model.IPv4: true, model.IPv6: true},
	}
	s.proxy = tcpproxy.New(tcpproxy.Config{Router: s, Sockets: sockets, Connections: connections, OfFrontend: max(1, connections/2), Log: n.ObjectLog})
	return s
}

// Update follows the changes of a successful sync. It does not wait for the port to be opened;
// [Server.Run] opens it. Calls must not overlap, and the node serves the changes before.
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
	if route.Service.Extra().OnFailure.Closes(s.node.Config.Own.ConntrackTCPCleanup) {
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
	if a := feature.Find[assessor](s.node.Features); changed && a != nil {
		var services []model.ServiceName
		for at := range s.proxy.Frontends() {
			if r, relayed := s.node.Serving().Relay(at); relayed && !slices.Contains(services, r.Service) {
				services = append(services, r.Service)
			}
		}
		a.Synced(services...)
	}
	return ok
}

// assessor finds out again whether Services have a usable server.
type assessor interface{ Synced(...model.ServiceName) }

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
			s.node.ObjectLog.Error("connections to relayed Balances are refused; retrying", "family", f, "error", err)
		}
		return false
	}
	if s.failures[f] != "" {
		delete(s.failures, f)
		s.node.ObjectLog.Info("connections are relayed again", "family", f)
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

func (s *Server) Counts() tcpproxy.Counts {
	return s.proxy.Counts(tcpproxy.Forwarded, tcpproxy.Limited, tcpproxy.NoServer, tcpproxy.DialFailed, tcpproxy.NotRelayed, tcpproxy.Looped, tcpproxy.AcceptFailed)
}

type Kind struct{}

// New implements [feature.Kind]. Only Services of files ask for a relay.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	return newServer(n, systemd.NewStore(), descriptors.Relay(len(n.Config.Node.Localhost()) > 0), tcpproxy.Kernel{})
}

func (s *Server) FollowSync(f *feature.Sync) {
	if f.Err == nil {
		s.Update(f.Routes)
	}
}

func (s *Server) Problems(now time.Time) (out []model.Notice) {
	for _, f := range model.Families {
		if text := s.Failure(f); text != "" {
			out = append(out, feature.OfMachine(model.UnusableRelayPort, text)...)
		}
	}
	for _, f := range s.full(now) {
		out = append(out, model.Notice{Object: f.object, Reason: model.RelayFull, Message: f.text})
	}
	return out
}

type full struct {
	object model.Object // the machine, or the Service that relays the connections
	text   string
}

func (s *Server) full(now time.Time) (out []full) {
	for _, f := range s.proxy.Full(now) {
		if f.At == (model.Frontend{}) {
			out = append(out, full{model.Machine(), describeFull(f, "") + "; nftproxy may need a higher limit of open files (LimitNOFILE)"})
		} else if r, ok := s.node.Serving().Relay(f.At); ok {
			text := describeFull(f, " through "+tcpproxy.AddressOf(f.At).String()) + "; limits: {connectionsPerClient} bounds what a client may have"
			out = append(out, full{r.Service.Object(), text})
		}
	}
	return out
}

func describeFull(f tcpproxy.Full, through string) string {
	return fmt.Sprintf("the limit of %d relayed connections%s is reached: a new one ends the one that is idle for the longest time, of the client with the most, now %s with %d",
		f.Connections, through, fair.ClientText(f.Client), f.OfClient)
}

// FullOf returns the limits of connections to a Service that are reached, in words.
func (s *Server) FullOf(name model.ServiceName, now time.Time) (out []string) {
	for _, f := range s.full(now) {
		if f.object == name.Object() || f.object == model.Machine() {
			out = append(out, f.text)
		}
	}
	return out
}

func (s *Server) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newCollector(s.Counts)}
}

func newCollector(counts func() tcpproxy.Counts) prometheus.Collector {
	open := scraped.Gauge("nftproxy_relay_connections", "Open connections to Balances that nftproxy relays.")
	total := scraped.Counter("nftproxy_relay_connections_total",
		"Connections to Balances that nftproxy relays by result: forwarded, or refused because it ended for a newer one (limit), of no server (no_server, dial_failed), a client that dialled the port of the relay itself (not_relayed) or has passed too many relays (loop), or a lack of resources (accept_failed).",
		"result")
	closed := scraped.Counter("nftproxy_relay_closed_total", "Relayed connections that nftproxy ended: for a newer one (limit), or without data (idle).", "reason")
	retried := scraped.Counter("nftproxy_relay_retries_total", "How often nftproxy tried another server for a relayed connection.")
	return scraped.New(func(out scraped.Values) error {
		now := counts()
		out.Add(open, float64(now.Connections))
		for result, n := range now.Total {
			out.Add(total, float64(n), result.String())
		}
		for reason, n := range now.Closed {
			out.Add(closed, float64(n), reason.String())
		}
		out.Add(retried, float64(now.Retried))
		return nil
	}, open, total, closed, retried)
}

func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{
		{
			Name: "relay port", What: "the listeners of relayed Balances and the sockets of their tables, in systemd ([relay](relay.md))",
			Mark:     "names that begin with `relay-`",
			Restored: "made at the start, if systemd has none",
			Removed:  "the last relayed Balance; `systemctl stop`",
			Writers:  []string{"internal/systemd/store.go", "internal/feature/relay/gate.go"},
		},
	}
}
