package machine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

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

// endpointIn returns an endpoint in a range that is no address of this machine.
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

// isLinked reports whether an address is in a network of an interface.
func (f *Facts) isLinked(a netip.Addr) bool {
	return slices.ContainsFunc(f.Assigned, func(n Assigned) bool { return n.Network.Contains(a) })
}
