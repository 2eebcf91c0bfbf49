package conntrack

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Endpoint is where a Service leads to.
type Endpoint struct {
	Protocol model.Protocol
	Address  netip.AddrPort
}

// Count returns how many open connections lead to endpoints through frontends: those to
// the endpoints' own addresses do not count. A connection is open until both sides have
// ended it; one of UDP is open until the kernel forgets it, seconds after its last packet.
// Of them, only those that include accepts count; nil accepts all.
func Count(endpoints []Endpoint, include func(*Flow) bool) (map[Endpoint]int, error) {
	counts := make(map[Endpoint]int)
	var scopes []scope
	for _, e := range endpoints {
		counts[e] = 0
		if s := (scope{model.FamilyOf(e.Address.Addr()), e.Protocol}); !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	var k Netlink
	if !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Address.Addr() != endpoints[0].Address.Addr() }) && len(endpoints) > 0 {
		k.From = endpoints[0].Address.Addr() // the kernel compares with one address only
	}
	for _, s := range scopes {
		if err := s.count(k, counts, include); err != nil {
			return nil, fmt.Errorf("count connections: %w", err)
		}
	}
	return counts, nil
}

// count counts the connections of one family and protocol.
func (s scope) count(k Kernel, counts map[Endpoint]int, include func(*Flow) bool) error {
	return netlinkio.Retry(netlinkio.Fades, func() error {
		for e := range counts {
			if e.Protocol == s.protocol && model.FamilyOf(e.Address.Addr()) == s.family {
				counts[e] = 0
			}
		}
		return k.List(s.family, s.protocol, func(f Flow) {
			e := Endpoint{f.Protocol, f.Answers}
			if _, wanted := counts[e]; wanted && !f.Closing && f.Dialled != f.Answers && (include == nil || include(&f)) {
				counts[e]++
			}
		})
	})
}
