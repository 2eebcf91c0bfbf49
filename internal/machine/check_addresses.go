package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Assigned is an address of an interface, with its network.
type Assigned struct {
	Interface string
	Network   netip.Prefix // its address is the one of the interface
}

// silence is why nothing answers ARP or neighbour discovery for an address.
type silence struct {
	link      string // on which neighbours ask
	elsewhere string // the interface that has the address; empty: none has
}

// neighbourhood answers questions about many addresses.
type neighbourhood struct {
	*Facts
	of       map[netip.Addr][]string // interfaces of an address
	networks []Assigned              // of more than one address
}

func (f *Facts) newNeighbourhood() *neighbourhood {
	n := &neighbourhood{Facts: f, of: make(map[netip.Addr][]string)}
	for _, a := range f.Assigned {
		n.of[a.Network.Addr()] = append(n.of[a.Network.Addr()], a.Interface)
		if a.Interface != "lo" && !a.Network.IsSingleIP() && !a.Network.Addr().IsLinkLocalUnicast() {
			n.networks = append(n.networks, a)
		}
	}
	return n
}

// whySilent returns why this machine does not answer neighbours that ask for an address. It
// does, or they do not ask, if the link is empty: other networks need a route to here,
// which cannot be seen.
func (n *neighbourhood) whySilent(a netip.Addr) silence {
	i := slices.IndexFunc(n.networks, func(at Assigned) bool { return at.Network.Contains(a) })
	if i < 0 {
		return silence{}
	}
	s := silence{link: n.networks[i].Interface}
	has := n.of[a]
	if slices.Contains(has, s.link) || slices.Contains(n.Proxied, a) {
		return silence{}
	}
	if len(has) > 0 {
		s.elsewhere = has[0]
	}
	// With IPv4, an interface answers for all addresses of the machine unless arp_ignore is set.
	if a.Is4() && !slices.Contains(n.StrictARP, s.link) && (len(has) > 0 || n.Router != nil && n.Router.Local(a)) {
		return silence{}
	}
	return s
}

// serviceAddresses finds addresses of Services for which nothing answers ARP or neighbour
// discovery. In a cluster, other programs announce them.
func serviceAddresses(f *Facts, u Use) (out []Finding) {
	if u.Addresses == nil || u.Cluster {
		return u.okFinding("the addresses of Services are not known, or announced by other programs")
	}
	type place struct {
		family model.Family
		silence
	}
	found := make(map[place][]string)
	var places []place
	around := f.newNeighbourhood()
	for a := range u.Addresses {
		s := around.whySilent(a)
		if s.link == "" {
			continue
		}
		p := place{model.FamilyOf(a), s}
		if found[p] == nil {
			places = append(places, p)
		}
		if name := a.String(); !slices.Contains(found[p], name) {
			found[p] = append(found[p], name)
		}
	}
	for _, p := range places {
		out = append(out, p.silence.newFinding(p.family, found[p]))
	}
	return out
}

func (s silence) newFinding(f model.Family, addresses []string) Finding {
	why, protocol := "no interface has it", "ARP"
	if s.elsewhere != "" {
		why = fmt.Sprintf("%s has it, for which %s does not answer", s.elsewhere, s.link)
	}
	command := fmt.Sprintf("ip address add %s/32 dev %s", addresses[0], s.link)
	if f == model.IPv6 {
		protocol, command = "neighbour discovery", fmt.Sprintf("ip address add %s/128 dev %s nodad", addresses[0], s.link)
	}
	if len(addresses) > 1 {
		why = strings.ReplaceAll(why, " has it", " has them")
	}
	return Finding{Level: Warning, Subject: f.String() + " " + s.link,
		Message: fmt.Sprintf("nothing on this machine answers %s for %s, which is in the network of %s: %s", protocol, joinNames(addresses), s.link, why),
		Remedy:  command + ", or let keepalived add it. Ignore this on a standby, or if another program answers"}
}

const mostRoutes = 256

// endpointRoutes finds endpoints to which no route leads. With policy routing, another
// route may hold for packets that are forwarded.
func endpointRoutes(f *Facts, u Use) []Finding {
	if u.Endpoints == nil || f.Router == nil {
		return u.okFinding("endpoints are not known")
	}
	asked := make(map[netip.Addr]bool)
	for e := range u.eachReached {
		if len(asked) == mostRoutes {
			break
		}
		if !e.IsLoopback() && !slices.Contains(f.Addresses, e) {
			asked[e] = true
		}
	}
	if len(asked) == 0 {
		return u.okFinding("no endpoint is on another machine or in a pod")
	}
	var without []string
	for e := range asked {
		if !f.Router.Routed(e) {
			without = append(without, e.String())
		}
	}
	if len(without) == 0 {
		return okFinding("this machine has a route to %s", u.Words.Count(len(asked), "endpoint"))
	}
	slices.Sort(without)
	level := Problem
	if f.PolicyRules > 0 {
		level = Warning
	}
	return []Finding{{Level: level, Documentation: forwardingPage(u),
		Message: fmt.Sprintf("this machine has no route to %s: connections to %s fail", joinNames(without), u.Words.Count(len(without), "endpoint")),
		Remedy:  u.Words.Text("ip route add, or check the network configuration or the CNI plugin")}}
}

// kernelRouter asks the kernel.
type kernelRouter struct{}

// Routed implements [Router].
func (kernelRouter) Routed(a netip.Addr) bool {
	_, err := netlink.RouteGet(a.AsSlice())
	return !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINVAL)
}

// Local implements [Router].
func (kernelRouter) Local(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// Ranges are the known ranges of addresses, by their use.
type Ranges struct {
	LoadBalancers []netip.Prefix // in which unused addresses are dropped
	Services      []netip.Prefix
	Pods          []netip.Prefix
}

// loadBalancerRanges finds addresses in the ranges of --load-balancer-cidrs that are in use
// for something else: packets to them are dropped. Addresses of this machine and in its networks
// are left alone (4.72).
func loadBalancerRanges(f *Facts, u Use) (out []Finding) {
	if len(u.Ranges.LoadBalancers) == 0 {
		return okFinding("no ranges of load balancers are configured")
	}
	for _, p := range u.Ranges.LoadBalancers {
		warn := func(format string, args ...any) {
			out = append(out, Finding{Level: Warning, Subject: p.String(),
				Message: fmt.Sprintf("%s of --load-balancer-cidrs %s", p, u.Words.Sprintf(format, args...)),
				Remedy:  u.Words.Text("list only ranges of load balancer addresses and external IPs")})
		}
		overlaps := func(all []netip.Prefix) (netip.Prefix, bool) {
			i := slices.IndexFunc(all, p.Overlaps)
			if i < 0 {
				return netip.Prefix{}, false
			}
			return all[i], true
		}
		if pods, found := overlaps(slices.Concat(u.PodRanges, u.Ranges.Pods)); found {
			warn("has addresses of pods (%s): packets to them are dropped", pods)
		}
		if services, found := overlaps(u.Ranges.Services); found {
			warn("overlaps the service CIDR %s: unused addresses are dropped there in any case", services)
		}
		if endpoint, found := f.endpointIn(p, u); found {
			warn("has the endpoint %s: packets that are sent to it directly are dropped", endpoint)
		}
	}
	return out
}

func (f *Facts) endpointIn(p netip.Prefix, u Use) (netip.Addr, bool) {
	if u.Endpoints == nil {
		return netip.Addr{}, false
	}
	for e := range u.eachReached {
		if p.Contains(e) && !slices.Contains(f.Addresses, e) && !f.isLinked(e) && model.FamilyOf(e) == model.FamilyOf(p.Addr()) {
			return e, true
		}
	}
	return netip.Addr{}, false
}

func (f *Facts) isLinked(a netip.Addr) bool {
	return slices.ContainsFunc(f.Assigned, func(n Assigned) bool { return n.Network.Contains(a) })
}
