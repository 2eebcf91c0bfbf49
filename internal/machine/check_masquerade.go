package machine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
)

func masqueradePorts(f *Facts, u Use) (out []Finding) {
	if f.Ports == nil {
		return okFinding("masqueraded connections are not counted")
	}
	crowds, err := f.Ports.Crowded()
	if err != nil {
		return []Finding{Settings.unseenFinding("", err)}
	}
	remedy := "more addresses of this machine in masqueradeFrom of the Balance, or clientAddresses: keep if the server's answers can return through this machine"
	if u.Cluster {
		remedy = "more addresses of this node in --masquerade-from, or externalTrafficPolicy: Local"
	}
	for _, c := range crowds {
		out = append(out, Finding{Level: Problem, Subject: fmt.Sprintf("%s %s %s", c.Protocol, c.Server, c.From), Remedy: remedy,
			Message: fmt.Sprintf("%s %s has %d masqueraded connections from %s, an address that has ports for %d: new ones fail, all of them when no port is left",
				c.Protocol, c.Server, c.Connections, c.From, conntrack.MasqueradePorts)})
	}
	return out
}

func masqueradeFrom(f *Facts, u Use) (out []Finding) {
	for _, a := range u.MasqueradeFrom {
		if !slices.Contains(f.Addresses, a) {
			out = append(out, Finding{Level: Problem, Subject: a.String(),
				Message: fmt.Sprintf("no interface has %s, which --masquerade-from names: it is left out", a),
				Remedy:  fmt.Sprintf("ip address add %s/%d dev INTERFACE, or leave it out of --masquerade-from", a, a.BitLen())})
		}
	}
	return out
}

// Sourced are routes that prefer another source than masquerading takes.
type Sourced struct {
	Family   model.Family
	Link     string
	Prefers  netip.Addr
	Takes    netip.Addr
	Examples []string // destinations
}

func masqueradeSource(f *Facts, u Use) (out []Finding) {
	for _, s := range f.Sourced {
		own := func(a netip.Addr) bool { return model.FamilyOf(a) == s.Family }
		if !slices.Contains(u.servedFamilies(f), s.Family) || slices.ContainsFunc(u.MasqueradeFrom, own) {
			continue
		}
		out = append(out, Finding{Level: Warning, Subject: s.Link + " " + s.Prefers.String(),
			Message: fmt.Sprintf("routes by %s prefer the source %s (%s), and masquerading takes %s, which network policies, firewalls and WireGuard may not admit",
				s.Link, s.Prefers, joinNames(s.Examples), s.Takes),
			Remedy: "nftproxy run --masquerade-from " + s.Prefers.String()})
	}
	return out
}

// addSourced adds a route, unless masquerading takes its source.
func (f *Facts) addSourced(family model.Family, r *netlink.Route, link string, addresses []netlink.Addr) {
	prefers, given := netip.AddrFromSlice(r.Src)
	if prefers = prefers.Unmap(); !given || r.Type != unix.RTN_UNICAST || link == "" || link == "lo" {
		return
	}
	takes := masqueradeAddress(family, r, addresses)
	if !takes.IsValid() || takes == prefers {
		return
	}
	to := "default"
	if r.Dst != nil && prefixLength(*r) > 0 {
		to = r.Dst.String()
	}
	i := slices.IndexFunc(f.Sourced, func(s Sourced) bool { return s.Link == link && s.Prefers == prefers && s.Takes == takes })
	if i < 0 {
		i = len(f.Sourced)
		f.Sourced = append(f.Sourced, Sourced{Family: family, Link: link, Prefers: prefers, Takes: takes})
	}
	if s := &f.Sourced[i]; !slices.Contains(s.Examples, to) {
		s.Examples = append(s.Examples, to)
	}
}

// masqueradeAddress returns the address that masquerading takes for a route: of IPv4, the first of
// the outgoing interface in the network of the next hop, or else the first of it, or else the first
// of any interface (inet_select_addr). Of IPv6, where other rules choose among those of the interface,
// only whether that has the preferred one counts.
func masqueradeAddress(f model.Family, r *netlink.Route, all []netlink.Addr) netip.Addr {
	hop := r.Gw
	if hop == nil && r.Dst != nil {
		hop = r.Dst.IP
	}
	var first, elsewhere netip.Addr
	for i := range all {
		a, valid := netip.AddrFromSlice(all[i].IP)
		a = a.Unmap()
		const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DEPRECATED
		switch {
		case !valid || model.FamilyOf(a) != f || all[i].Scope != unix.RT_SCOPE_UNIVERSE:
		case f == model.IPv4 && all[i].Flags&unix.IFA_F_SECONDARY != 0, f == model.IPv6 && all[i].Flags&unusable != 0:
		case all[i].LinkIndex != r.LinkIndex:
			elsewhere = cmp.Or(elsewhere, a)
		case f == model.IPv4 && hop != nil && all[i].Contains(hop), f == model.IPv6 && all[i].IP.Equal(r.Src):
			return a
		default:
			first = cmp.Or(first, a)
		}
	}
	if f == model.IPv6 {
		return first
	}
	return cmp.Or(first, elsewhere)
}
