package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PortRange is a range of ports on which a Service is served in addition to its ports,
// or one further port. All hosts of the Service are its endpoints, with any ports in their
// slices.
type PortRange struct {
	// ServicePort has the first port, no NodePort, and a name that no port of a Service
	// can have, for example "10000-20000/udp".
	ServicePort
	Last   uint16 // zero: there is only one port
	Target uint16 // port of the endpoints; zero: the one that the client dialled
	// OnNode allows the addresses of the node: the operator of this machine wants it.
	OnNode bool
}

// AllPorts is the last port of a range that has all of them.
const AllPorts = 65535

// IsWhole reports whether the range has all ports of an address.
func (p *PortRange) IsWhole() bool { return p.Port == 1 && p.Last == AllPorts }

// String returns the range as the annotation has it, for example "10000-20000/udp",
// "all/tcp" or "5060/udp:5061".
func (p *PortRange) String() string {
	text := fmt.Sprint(p.Port)
	switch {
	case p.IsWhole():
		text = "all"
	case p.Last != 0:
		text += fmt.Sprintf("-%d", p.Last)
	}
	text += "/" + p.Protocol.String()
	if p.Target != 0 {
		text += fmt.Sprintf(":%d", p.Target)
	}
	return text
}

// rangeTarget returns the port of the endpoints of a range with a name, or zero if they
// keep the one that the client dialled. Ports of a Service have no such name.
func rangeTarget(name string) (port uint16, isRange bool) {
	ports, rest, isRange := strings.Cut(name, "/")
	if !isRange {
		return 0, false
	}
	_, target, has := strings.Cut(rest, ":")
	if !has {
		target = ports // of a single port; a range has no number
	}
	n, _ := strconv.ParseUint(target, 10, 16)
	return uint16(n), true
}

// OfRange reports whether the port is one of [Extras.Ranges], also if that has one port.
func (n PortName) OfRange() bool {
	_, ofRange := rangeTarget(n.Port)
	return ofRange
}

// IsRange reports whether the frontend has more than one port.
func (f Frontend) IsRange() bool { return f.Last != 0 }

// Contains reports whether clients of another frontend's first port dial this one.
func (f Frontend) Contains(o Frontend) bool {
	return f.Address == o.Address && f.Protocol == o.Protocol && f.Port <= o.Port && o.Port <= max(f.Port, f.Last)
}

// Overlaps reports whether two frontends are ranges with common ports.
func (f Frontend) Overlaps(o Frontend) bool {
	return f.Address == o.Address && f.Protocol == o.Protocol && f.Port <= o.Last && o.Port <= f.Last
}

// AffinityTimeout returns how long a client stays on its endpoint; zero: no affinity. A
// range has none, because clients are bound to endpoints by exact frontends, and a Balance with a
// range has none at all.
func (r *Route) AffinityTimeout() time.Duration {
	if r.Frontend.IsRange() || r.Service.hashesAll() {
		return 0
	}
	return r.Service.AffinityTimeout
}

// Scheduler returns the scheduler of the Service, or the default. Instead of session affinity a
// range has source-hash, which gives a client the same host for all ports of all ranges, and so
// have the other ports of a Balance. A relay
// has no tables, so the default of a node is not for it.
func (r *Route) Scheduler() Scheduler {
	switch {
	case r.Frontend.IsRange() && r.Service.AffinityTimeout > 0, r.Service.hashesAll():
		return SourceHash
	case r.Relayed():
		return cmp.Or(r.Service.Scheduler, RoundRobin)
	}
	return r.Service.Scheduler
}

// routeRanges returns the routes of the ranges of a Service in a family: like routes of
// its ports, but without NodePorts and addresses of the node.
func routeRanges(s *Service, slices []*EndpointSlice, f Family, l *Locality, sources familySources) []Route {
	ranges := s.Extra().Ranges
	if len(ranges) == 0 {
		return nil
	}
	var routes []Route
	hosts, external := hostsOf(slices, f), s.externalOrZero()
	onNodes := l.balancesToNodes(s)
	for i := range ranges {
		p := &ranges[i]
		target := p.Target // zero: the port that the client dialled
		if p.Last == 0 {
			target = cmp.Or(p.Target, p.Port)
		}
		choice := ChoosePort(s, p.Protocol, withPort(hosts, target), l.Node)
		add := func(kind Kind, addrs ...netip.Addr) {
			for _, a := range addrs {
				if FamilyOf(a) == f && (p.OnNode || !l.ownsAddress(a)) && !external.repeats(kind, a) {
					routes = append(routes, Route{Frontend{a, p.Protocol, p.Port, p.Last}, kind, s, &p.ServicePort, choice, sources.clientsOf(kind, a)})
				}
			}
		}
		if ip, ok := s.ClusterIP(f); ok {
			add(ClusterIP, ip)
		}
		if p.OnNode || !onNodes {
			add(LoadBalancerIP, external.LoadBalancerIPs...)
		}
		if !s.NoClusterIP && !l.NoExternalIPs {
			add(ExternalIP, external.ExternalIPs...)
		}
	}
	return routes
}

// hostsOf returns the hosts of a Service in a family without ports, each once: its best
// record.
func hostsOf(ss []*EndpointSlice, f Family) []Endpoint {
	var out []Endpoint
	weight := uint8(0)
	for _, s := range ss {
		if s.Family != f {
			continue
		}
		weight = max(weight, s.defaultWeight())
		for i := range s.Hosts {
			out = append(out, Endpoint{Host: &s.Hosts[i]})
		}
	}
	for i := range out {
		out[i].Default = weight
	}
	slices.SortFunc(out, compareEndpoints)
	return slices.CompactFunc(out, Endpoint.sameAddress)
}

func withPort(hosts []Endpoint, port uint16) []Endpoint {
	if port == 0 {
		return hosts
	}
	out := slices.Clone(hosts)
	for i := range out {
		out[i].Port = port
	}
	return out
}

func (l *Locality) ownsAddress(a netip.Addr) bool { return a.IsLoopback() || contains(l.own, a) }

// balancesToNodes reports whether the load balancer of a Service gives out addresses of
// nodes, because it gives out one of this node: the others belong to other nodes, which
// need their ports, too. The addresses of a Balance are chosen one by one.
func (l *Locality) balancesToNodes(s *Service) bool {
	return !s.Balance && slices.ContainsFunc(s.externalOrZero().LoadBalancerIPs, l.ownsAddress)
}

// rangeNotices reports the addresses of a Service that do not get its ranges, because
// they are addresses of the node.
func rangeNotices(s *Service, l *Locality) []Notice {
	var refused []string
	for i := range s.Extra().Ranges {
		if p := &s.Extra().Ranges[i]; !p.OnNode {
			refused = append(refused, p.Name)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	var out []Notice
	for _, a := range s.rangeAddresses(l.NoExternalIPs) {
		what := "an address of this node"
		_, served := s.primaryIn(FamilyOf(a))
		switch {
		case !served:
			continue
		case l.ownsAddress(a):
		case l.balancesToNodes(s) && slices.Contains(s.externalOrZero().LoadBalancerIPs, a):
			what = "an address of a load balancer that hands out addresses of nodes"
		default:
			continue
		}
		out = append(out, newNotice(s.Object(), NodeAddress, "%s not served on %s, %s: this would take ports from the node's own programs", listFew(refused), a, what))
	}
	return out
}

func listFew(names []string) string {
	const most = 3
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (s *Service) rangeAddresses(noExternalIPs bool) []netip.Addr {
	if len(s.Extra().Ranges) == 0 {
		return nil
	}
	e := s.externalOrZero()
	out := slices.Concat(s.ClusterIPs, e.LoadBalancerIPs)
	if !s.NoClusterIP && !noExternalIPs {
		out = append(out, e.ExternalIPs...)
	}
	return sortDistinct(out)
}
