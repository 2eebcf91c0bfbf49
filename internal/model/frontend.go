package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Frontend is an address that clients dial, with a port or a range of ports. It is
// comparable.
type Frontend struct {
	Address  netip.Addr
	Protocol Protocol
	Port     uint16
	Last     uint16 // the last port of a range that begins with Port; zero: one port
}

// FrontendID is what rules know a frontend by. It is comparable, and no two frontends that
// are served at the same time have the same one.
type FrontendID struct {
	Address  netip.Addr
	Protocol Protocol
	Port     uint16 // of a range the first one: no two ranges of an address and protocol overlap
	Range    bool   // the address may also have a frontend with this port alone
}

func (f Frontend) ID() FrontendID { return FrontendID{f.Address, f.Protocol, f.Port, f.IsRange()} }

// Wildcard returns the unspecified address of a family. It is the address of a
// NodePort frontend on all addresses that serve NodePorts.
func Wildcard(f Family) netip.Addr {
	if f == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// OnNode returns the NodePort frontend with the unspecified address that applies if
// the frontend's address serves NodePorts and has no frontend of its own.
func (f Frontend) OnNode() Frontend {
	f.Address = Wildcard(FamilyOf(f.Address))
	return f
}

// String returns for example "tcp 10.96.0.1:443" or "udp 192.0.2.1:10000-20000".
func (f Frontend) String() string {
	return f.Protocol.String() + " " + f.Target()
}

// Target returns the address with the port, or with the range of ports.
func (f Frontend) Target() string {
	text := netip.AddrPortFrom(f.Address, f.Port).String()
	if f.IsRange() {
		text += fmt.Sprintf("-%d", f.Last)
	}
	return text
}

// ParseFrontend parses a protocol and what [Frontend.Target] returns.
func ParseFrontend(protocol, target string) (f Frontend, err error) {
	if f.Protocol, err = ParseProtocol(protocol); err != nil {
		return f, err
	}
	first := target
	if i := strings.LastIndexByte(target, '-'); i >= 0 {
		last, err := strconv.ParseUint(target[i+1:], 10, 16)
		if err != nil {
			return f, fmt.Errorf("%q is not a range of ports: %w", target, err)
		}
		first, f.Last = target[:i], uint16(last)
	}
	at, err := netip.ParseAddrPort(first)
	f.Address, f.Port = at.Addr(), at.Port()
	return f, err
}

// Compare orders by address, protocol, then ports.
func (f Frontend) Compare(o Frontend) int {
	return cmp.Or(f.Address.Compare(o.Address), cmp.Compare(f.Protocol, o.Protocol), cmp.Compare(f.Port, o.Port), cmp.Compare(f.Last, o.Last))
}

// Kind is the origin of a frontend's address.
type Kind uint8

const (
	ClusterIP Kind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"ClusterIP", "load balancer IP", "external IP", "NodePort"}[k]
}

type Route struct {
	Frontend Frontend
	Kind     Kind
	Service  *Service
	Port     *ServicePort // of the Service
	Choice   *Choice
	Sources  *Sources // the clients that may connect; nil: all (4.30, 4.75)
}

// SourceRanges returns the ranges of clients that may connect. Without a limit all may,
// except those in [Route.DeniedSources].
func (r *Route) SourceRanges() (ranges []netip.Prefix, limited bool) {
	if r.Sources == nil {
		return nil, false
	}
	return r.Sources.Allowed, r.Sources.Limited
}

// DeniedSources returns the ranges of clients that may not connect (4.76).
func (r *Route) DeniedSources() []netip.Prefix {
	if r.Sources == nil {
		return nil
	}
	return r.Sources.Denied
}

func (r *Route) PortName() PortName {
	return PortName{r.Service.Name, r.Port.Name, r.Port.Protocol}
}

// Alone reports whether the route is the only one with its choice.
func (r *Route) Alone() bool { return r.Service.External == nil && r.Port.NodePort == 0 }

// Local reports whether clients outside of the cluster get endpoints on this node
// only, and keep their address. There are none on localhost.
func (r *Route) Local() bool {
	return r.Kind != ClusterIP && !r.Frontend.OnLocalhost() && r.Service.ExternalPolicy == PolicyLocal
}

// Masquerading is for which clients of a frontend the source is masqueraded. The
// rules for ClusterIPs apply in addition.
type Masquerading uint8

const (
	MasqueradeNone Masquerading = iota
	MasqueradeNode              // connections of the node itself
	MasqueradeAll               // every connection
)

// Masquerading returns for which clients the source is masqueraded (table 4-A, 1.42).
func (r *Route) Masquerading() Masquerading {
	switch {
	case r.Relayed(): // it ends at this machine
		return MasqueradeNone
	case r.Service.ClientAddresses == MasqueradeClientAddresses:
		return MasqueradeAll
	case r.Kind == ClusterIP:
		return MasqueradeNone
	case r.Local() || r.Service.ClientAddresses == KeepClientAddresses:
		return MasqueradeNode
	}
	return MasqueradeAll
}

// MasqueradeFrom returns the addresses of the frontend's family with which its Service
// masquerades in turn; none: as all others (8.7).
func (r *Route) MasqueradeFrom() []netip.Addr {
	all := r.Service.Extra().MasqueradeFrom
	if len(all) == 0 || r.Masquerading() != MasqueradeAll {
		return nil
	}
	family := FamilyOf(r.Frontend.Address)
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return FamilyOf(a) != family })
}

// Inside returns the decision for connections from a pod or from the node itself.
func (r *Route) Inside() Decision { return r.Choice.Decide(r.InsidePolicy()) }

// InsidePolicy returns the policy for connections from a pod or from the node. The
// external policy does not apply to them (table 4-B).
func (r *Route) InsidePolicy() Policy {
	if r.Kind == ClusterIP {
		return r.Service.InternalPolicy
	}
	return PolicyCluster
}

// Outside returns the decision for clients outside of the cluster.
func (r *Route) Outside() Decision {
	if r.Local() {
		return r.Choice.Decide(PolicyLocal)
	}
	return r.Inside()
}

// RouteService returns the routes of one Service, which has these slices, on a node: one
// for each address and port or range of ports.
func RouteService(s *Service, slices []*EndpointSlice, l *Locality) []Route {
	routes, external := make([]Route, 0, s.mostRoutes(l)), s.externalOrZero()
	var few [4]slicePort // the common case
	ports := newSlicePorts(few[:0], slices)
	for _, f := range Families {
		if _, ok := s.primaryIn(f); !ok {
			continue
		}
		clusterIP, hasClusterIP := s.ClusterIP(f)
		sources := l.sourcesOf(s, f)
		for i := range s.Ports {
			p := &s.Ports[i]
			choice := ChoosePort(s, p.Protocol, ports.endpointsOf(p.Name, p.Protocol, f), l.Node)
			add := func(kind Kind, port uint16, addrs ...netip.Addr) {
				for _, a := range addrs {
					if FamilyOf(a) == f && !external.repeats(kind, a) {
						routes = append(routes, Route{Frontend{a, p.Protocol, port, 0}, kind, s, p, choice, sources.clientsOf(kind, a)})
					}
				}
			}
			if hasClusterIP {
				add(ClusterIP, p.Port, clusterIP)
			}
			add(LoadBalancerIP, p.Port, external.LoadBalancerIPs...)
			if s.NoClusterIP {
				continue
			}
			if !l.NoExternalIPs {
				add(ExternalIP, p.Port, external.ExternalIPs...)
			}
			if p.NodePort != 0 {
				add(NodePort, p.NodePort, l.nodePorts...)
				if p.Protocol == TCP {
					add(NodePort, p.NodePort, l.localhost...)
				}
			}
		}
		routes = append(routes, routeRanges(s, slices, f, l, sources)...)
	}
	return routes
}

// mostRoutes returns the number of routes of a Service whose families all have a
// ClusterIP, and all external addresses count.
func (s *Service) mostRoutes(l *Locality) int {
	external := s.externalOrZero()
	n := (len(s.Ports) + len(s.Extra().Ranges)) * (len(s.ClusterIPs) + len(external.LoadBalancerIPs) + len(external.ExternalIPs))
	for i := range s.Ports {
		if s.Ports[i].NodePort != 0 {
			n += len(l.nodePorts) + len(l.localhost)
		}
	}
	return n
}

// compareClaims orders the routes that claim one frontend; the first one wins. A
// ClusterIP comes first, so that no Service can take another one's by naming it as
// an external address. Next are claims with endpoints (4.40), addresses of a Service
// before NodePorts (4.37), the oldest Service, and the first by name (4.39).
func compareClaims(a, b *Route) int {
	if c := compareRank(a, b); c != 0 { // most differ here, and names take longer to compare
		return c
	}
	return cmp.Or(a.PortName().Compare(b.PortName()), cmp.Compare(a.Kind, b.Kind))
}

func compareRank(a, b *Route) int {
	if c := CompareBool(a.Kind != ClusterIP, b.Kind != ClusterIP); c != 0 {
		return c
	}
	return cmp.Or(
		CompareBool(b.Inside().Verdict == Forward, a.Inside().Verdict == Forward),
		CompareBool(a.Kind == NodePort, b.Kind == NodePort),
		compareAge(a.Service.Created, b.Service.Created),
	)
}

func compareAge(a, b int64) int {
	return cmp.Or(CompareBool(a == 0, b == 0), cmp.Compare(a, b))
}

// Differs reports whether clients of the frontend may notice the change: who serves
// it, with which endpoints and weights, for which clients, or how.
func (c *RouteChange) Differs() bool {
	a, b := c.Old, c.New
	if a == nil || b == nil || a == b {
		return a != b
	}
	return a.Kind != b.Kind || a.PortName() != b.PortName() || a.Local() != b.Local() ||
		a.Masquerading() != b.Masquerading() || !slices.Equal(a.MasqueradeFrom(), b.MasqueradeFrom()) ||
		a.Service.BindsTogether() != b.Service.BindsTogether() ||
		a.Service.AffinityTimeout != b.Service.AffinityTimeout || a.Service.Scheduler != b.Service.Scheduler ||
		a.Service.Extra().MaglevSize != b.Service.Extra().MaglevSize ||
		a.Service.Extra().Limits != b.Service.Extra().Limits ||
		!a.Sources.Equal(b.Sources) ||
		!a.Inside().hasSameEffect(b.Inside()) || !a.Outside().hasSameEffect(b.Outside())
}

func (d Decision) hasSameEffect(o Decision) bool {
	return d.Verdict == o.Verdict && slices.EqualFunc(d.Endpoints, o.Endpoints, func(a, b Endpoint) bool {
		return a.sameAddress(b) && a.Weight() == b.Weight()
	})
}
