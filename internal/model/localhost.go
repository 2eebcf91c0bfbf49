package model

import (
	"net/netip"
	"slices"
)

// Rules cannot serve NodePorts on loopback addresses: an answer from another machine to
// such an address is discarded by the kernel, unless route_localnet opens the loopback
// addresses of the node to its neighbours, and IPv6 has no such switch. A process listens
// there instead, and connects to another frontend of the Service.

// loopbacks are the addresses that a listener uses.
var loopbacks = map[Family]netip.Addr{IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}), IPv6: netip.IPv6Loopback()}

// Loopback returns the loopback address of a family.
func Loopback(f Family) netip.Addr { return loopbacks[f] }

// HasLocalhost reports whether a range of loopback addresses includes the one that a
// listener uses.
func HasLocalhost(p netip.Prefix) bool { return p.Contains(loopbacks[FamilyOf(p.Addr())]) }

// Localhost returns the loopback addresses on which a listener serves NodePorts. A range
// of all addresses does not ask for them (6.14).
func (c *Config) Localhost() []netip.Addr {
	var out []netip.Addr
	for _, f := range Families {
		asked := func(p netip.Prefix) bool { return p.Addr().IsLoopback() && FamilyOf(p.Addr()) == f && HasLocalhost(p) }
		if !c.NoLocalhost && slices.ContainsFunc(c.NodePortAddresses, asked) {
			out = append(out, loopbacks[f])
		}
	}
	return out
}

// OnLocalhost reports whether a listener serves a frontend, and no rule.
func (f Frontend) OnLocalhost() bool { return f.Address.IsLoopback() }

// throughAddresses returns the addresses of the node through which listeners on localhost
// connect, one for each family in which NodePorts are served: the first one of the node, for
// it stays, or else any.
func (l *Locality) throughAddresses() (out []netip.Addr) {
	for _, f := range Families {
		first, ok := l.Node.primaryAddress(f)
		if !ok || !contains(l.NodePortAddresses, first) {
			i := slices.IndexFunc(l.NodePortAddresses, func(a netip.Addr) bool { return FamilyOf(a) == f })
			if i < 0 {
				continue
			}
			first = l.NodePortAddresses[i]
		}
		out = append(out, first)
	}
	return out
}

// BehindLocalhost returns the frontend that the listener of a NodePort on localhost connects
// to, and its route: the same NodePort on an address of the node, else the ClusterIP (6.17).
// The route is nil if there is none.
func (r *frontends) BehindLocalhost(on Frontend) (Frontend, *Route) {
	own := r.winners[on]
	if own == nil {
		return Frontend{}, nil
	}
	f := FamilyOf(on.Address)
	candidates := make([]Frontend, 0, 2)
	for _, a := range r.base.locality.through {
		if FamilyOf(a) == f {
			candidates = append(candidates, Frontend{Address: a, Protocol: on.Protocol, Port: on.Port})
		}
	}
	if a, ok := own.Service.ClusterIP(f); ok {
		candidates = append(candidates, Frontend{Address: a, Protocol: on.Protocol, Port: own.Port.Port})
	}
	for _, to := range candidates {
		if route := r.Serves(to); route != nil && route.PortName() == own.PortName() {
			return to, route
		}
	}
	return Frontend{}, nil
}
