package health

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
)

// ServicesConfig holds the dependencies of [Services].
type ServicesConfig struct {
	Node model.Config // for the addresses
	// Interfaces has the known addresses of this machine's interfaces. If there
	// are none, the addresses of the Node object are used (6.10).
	Interfaces Interfaces
	Proxy      Health // a [Proxy]; nil: it counts as healthy (10.25)
	// Connections is how many may be open to all ports together; zero: 1,024.
	Connections int
	Events      Events
	Log         *slog.Logger
}

// Interfaces are the interfaces of this machine.
type Interfaces interface{ Addresses() []netip.Addr }

// Health is the state of a proxy.
type Health interface{ Healthy() bool }

// Events learn once that a Service's port cannot be opened.
type Events interface {
	HealthCheckFailed(model.ServiceName, error)
}

// Services answer load balancers on the health check node ports of Services: whether
// this node has endpoints of them. They are safe for concurrent use.
type Services struct {
	ServicesConfig
	limit *serve.Limit // of all together
	ports serve.Network
	mu    sync.Mutex
	open  map[checkName]*check
}

// checkName is the unit of listening: the families of a Service are
// independent of each other (15.3).
type checkName struct {
	service model.ServiceName
	family  model.Family
}

// Connections limits the open connections to all Services together: load balancers
// check each of them, and may keep a connection.
const Connections = 1024

// NewServices returns Services that do not listen yet.
func NewServices(c ServicesConfig) *Services {
	return &Services{ServicesConfig: c, limit: serve.NewLimit(cmp.Or(c.Connections, Connections)), ports: new(net.ListenConfig), open: make(map[checkName]*check)}
}

// Update applies the health checks of a successful sync: it opens and closes ports,
// and retries those that failed. Clients cannot delay it. node is this node as the
// sync saw it.
func (s *Services) Update(checks []model.HealthCheck, node *model.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.wantedPorts(checks, node)
	// Close port numbers first: another Service may take them over.
	for name, c := range s.open {
		c.closePorts(func(open netip.AddrPort) bool {
			return slices.ContainsFunc(wanted[name], func(a netip.AddrPort) bool { return a.Port() == open.Port() })
		})
		if _, ok := wanted[name]; !ok {
			delete(s.open, name)
		}
	}
	for _, h := range checks {
		for _, f := range model.Families {
			if n, ok := h.Endpoints[f]; ok {
				c := s.check(checkName{h.Service, f})
				c.endpoints.Store(int64(n)) // before it listens
				s.logFailure(c, c.movePorts(wanted[c.name]))
			}
		}
	}
}

// check returns the check of that name, and creates it if it does not exist.
func (s *Services) check(name checkName) *check {
	c := s.open[name]
	if c == nil {
		c = &check{services: s, name: name, ports: make(map[netip.AddrPort]port)}
		s.open[name] = c
	}
	return c
}

// Close closes all ports.
func (s *Services) Close() { s.Update(nil, nil) }

func (s *Services) wantedPorts(checks []model.HealthCheck, node *model.Node) map[checkName][]netip.AddrPort {
	wanted := make(map[checkName][]netip.AddrPort)
	if len(checks) == 0 {
		return wanted
	}
	config := s.Node
	config.InterfaceAddresses = s.Interfaces.Addresses() // they come and go
	addresses := model.HealthCheckAddresses(node, config)
	for _, h := range checks {
		for f := range h.Endpoints {
			at := make([]netip.AddrPort, len(addresses[f]))
			for i, a := range addresses[f] {
				at[i] = netip.AddrPortFrom(a, h.Port)
			}
			wanted[checkName{h.Service, f}] = at
		}
	}
	return wanted
}

// logFailure logs a failure, unless it equals the last one.
func (s *Services) logFailure(c *check, err error) {
	switch {
	case err == nil && c.failure != "":
		c.failure = ""
		s.Log.Info("health check of a Service answers again", "service", c.name.service, "family", c.name.family)
	case err != nil && c.failure != err.Error():
		c.failure = err.Error()
		s.Log.Error("cannot serve the health check of a Service; the next change retries",
			"service", c.name.service, "family", c.name.family, "error", err)
		s.Events.HealthCheckFailed(c.name.service, err)
	}
}

// check answers for one Service in one family, on any path and method (10.17).
type check struct {
	services  *Services
	name      checkName
	endpoints atomic.Int64            // on this node
	ports     map[netip.AddrPort]port // that are open
	failure   string                  // reported last
}

type port struct {
	listener net.Listener
	server   *http.Server
}

// close closes the listener and all connections. A server that has just been started
// may not have its listener yet.
func (p port) close() {
	p.listener.Close()
	p.server.Close()
}

// checkAnswer is the body of an answer (10.19).
type checkAnswer struct {
	Service        serviceAnswer `json:"service"`
	LocalEndpoints int64         `json:"localEndpoints"`
	ProxyHealthy   bool          `json:"serviceProxyHealthy"`
}

type serviceAnswer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (c *check) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n, healthy := c.endpoints.Load(), c.services.Proxy == nil || c.services.Proxy.Healthy()
	body, _ := json.MarshalIndent(checkAnswer{serviceAnswer(c.name.service), n, healthy}, "", "\t") // these types cannot fail
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(n, 10))
	writeJSON(w, statusCode(n > 0 && healthy), body)
}

func (c *check) closePorts(keep func(netip.AddrPort) bool) {
	for at, p := range c.ports {
		if !keep(at) {
			p.close()
			delete(c.ports, at)
		}
	}
}

// movePorts opens these ports, then closes all others.
func (c *check) movePorts(to []netip.AddrPort) error {
	if err := c.listen(to); err != nil {
		return err
	}
	c.closePorts(func(at netip.AddrPort) bool { return slices.Contains(to, at) })
	return nil
}

// listen opens the ports that are not open yet: all or none (10.23).
func (c *check) listen(at []netip.AddrPort) error {
	opened := make(map[netip.AddrPort]net.Listener)
	for _, a := range at {
		if _, ok := c.ports[a]; ok {
			continue
		}
		// An unspecified address is one family's (10.15).
		from := serve.Address{Network: c.services.ports, Kind: fmt.Sprintf("tcp%d", c.name.family), Address: a.String()}
		l, err := serve.Listen(from, c.services.Log.With("service", c.name.service, "address", a))
		if err != nil {
			for _, l := range opened {
				l.Close()
			}
			return fmt.Errorf("%w: free that address, or give the Service another healthCheckNodePort", err)
		}
		opened[a] = c.services.limit.Listener(l)
	}
	for a, l := range opened {
		p := port{l, serve.NewHTTP(c, 0, c.services.Log)}
		c.ports[a] = p
		go p.server.Serve(l) // until it is closed
	}
	return nil
}
