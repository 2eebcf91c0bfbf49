package health

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
)

// ServicesConfig is what [Services] depend on.
type ServicesConfig struct {
	// Node says on which addresses NodePorts are served, and so health checks.
	Node model.Config
	// Interfaces returns the known addresses of this machine's interfaces. If
	// there are none, those of the Node object are used (6.10).
	Interfaces func() []netip.Addr
	// Healthy is [Proxy.Healthy]; nil: the proxy counts as healthy (10.25).
	Healthy func() bool
	// Failed is told of a Service whose port cannot be listened on, once until
	// that changes.
	Failed func(model.ServiceName, error)
	Log    *slog.Logger
}

// Services answer load balancers on the health check node ports of Services:
// whether this node has endpoints of them. Its methods are safe for concurrent
// use.
type Services struct {
	ServicesConfig
	limit *serve.Limit // of all together
	// listen is [net.Listen], except in tests.
	listen func(network, address string) (net.Listener, error)
	mu     sync.Mutex
	open   map[checkName]*check
}

// checkName is the unit of listening: the families of a Service are
// independent of each other (15.3).
type checkName struct {
	service model.ServiceName
	family  model.Family
}

// connections is how many there are at once to all Services: load balancers ask
// each of them, and may keep a connection.
const connections = 1024

// NewServices listens on nothing yet.
func NewServices(c ServicesConfig) *Services {
	if c.Healthy == nil {
		c.Healthy = func() bool { return true }
	}
	return &Services{ServicesConfig: c, limit: serve.NewLimit(connections), listen: net.Listen, open: make(map[checkName]*check)}
}

// Update takes the health checks of a successful sync over: it opens and closes
// ports as they ask for, and tries again what failed before. Clients cannot
// delay it. node is this node as the sync saw it.
func (s *Services) Update(checks []model.HealthCheck, node *model.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.wanted(checks, node)
	// Others may ask for the port numbers that are given up.
	for name, c := range s.open {
		at, ok := wanted[name]
		c.leave(func(open netip.AddrPort) bool { return ok && open.Port() == at.port })
		if !ok {
			delete(s.open, name)
		}
	}
	for _, h := range checks {
		for _, f := range model.Families {
			if n, ok := h.Endpoints[f]; ok {
				c := s.check(checkName{h.Service, f})
				c.endpoints.Store(int64(n)) // before anybody can ask
				s.report(c, c.move(wanted[c.name].addresses()))
			}
		}
	}
}

// check returns the check of that name, a new one if need be.
func (s *Services) check(name checkName) *check {
	c := s.open[name]
	if c == nil {
		c = &check{name: name, healthy: s.Healthy, limit: s.limit, open: s.listen, log: s.Log, ports: make(map[netip.AddrPort]port)}
		s.open[name] = c
	}
	return c
}

// Close closes all ports.
func (s *Services) Close() { s.Update(nil, nil) }

// place is where a check listens.
type place struct {
	port uint16
	on   []netip.Addr
}

func (p place) addresses() []netip.AddrPort {
	out := make([]netip.AddrPort, len(p.on))
	for i, a := range p.on {
		out[i] = netip.AddrPortFrom(a, p.port)
	}
	return out
}

// wanted returns where each check listens.
func (s *Services) wanted(checks []model.HealthCheck, node *model.Node) map[checkName]place {
	wanted := make(map[checkName]place)
	if len(checks) == 0 {
		return wanted
	}
	addresses := s.addresses(node)
	for _, h := range checks {
		for f := range h.Endpoints {
			wanted[checkName{h.Service, f}] = place{h.Port, addresses[f]}
		}
	}
	return wanted
}

// report tells of a failure, unless it is the one of the last attempt.
func (s *Services) report(c *check, err error) {
	switch {
	case err == nil && c.failure != "":
		c.failure = ""
		s.Log.Info("health check of a Service answers again", "service", c.name.service, "family", c.name.family)
	case err != nil && c.failure != err.Error():
		c.failure = err.Error()
		s.Log.Error("health check of a Service does not answer; it is tried again after the next change",
			"service", c.name.service, "family", c.name.family, "error", err)
		s.Failed(c.name.service, err)
	}
}

// addresses returns where to listen in each family (10.16). Interfaces come and
// go, so they are asked for at each update.
func (s *Services) addresses(node *model.Node) map[model.Family][]netip.Addr {
	out := make(map[model.Family][]netip.Addr)
	interfaces := s.Interfaces()
	if len(interfaces) == 0 {
		interfaces = model.NewLocality(node, s.Node).Node.Addresses
	}
	for _, f := range model.Families {
		ranges, all := s.ranges(node, f)
		if all {
			out[f] = []netip.Addr{unspecified(f)}
			continue
		}
		for _, a := range interfaces {
			// A link-local address means nothing without its link.
			linkLocal := f == model.IPv6 && a.IsLinkLocalUnicast()
			if !linkLocal && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
				out[f] = append(out[f], a)
			}
		}
		slices.SortFunc(out[f], netip.Addr.Compare)
		out[f] = slices.Compact(out[f])
	}
	return out
}

// ranges returns the ranges of family f in which NodePorts are served, or that
// they are served everywhere (6.3 to 6.5).
func (s *Services) ranges(node *model.Node, f model.Family) (ranges []netip.Prefix, all bool) {
	withPrimary := s.Node.NodePortPrimary || len(s.Node.NodePortAddresses) == 0
	if withPrimary {
		ranges = primaryRange(model.NewLocality(node, s.Node).Node, f)
	}
	for _, p := range s.Node.NodePortAddresses {
		if model.FamilyOf(p.Addr()) == f {
			ranges = append(ranges, p)
		}
	}
	all = len(ranges) == 0 && !withPrimary || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() == 0 })
	return ranges, all
}

// primaryRange returns the range of the first address of family f alone, if that
// is known.
func primaryRange(node *model.Node, f model.Family) []netip.Prefix {
	for _, a := range node.Addresses {
		if model.FamilyOf(a) == f {
			return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
		}
	}
	return nil
}

func unspecified(f model.Family) netip.Addr {
	if f == model.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
