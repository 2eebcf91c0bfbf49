package conntrack

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Endpoint is where connections end.
type Endpoint struct {
	Protocol model.Protocol
	Address  netip.AddrPort
}

// Count returns how many open connections lead to each endpoint at these addresses through
// another address: those to the endpoint's own address do not count. A connection is open
// until both sides have ended it; one of UDP is open until the kernel forgets it, seconds
// after its last packet. Only those that include accepts count; nil accepts all.
func Count(addresses []netip.Addr, include func(*Flow) bool) (map[Endpoint]int, error) {
	wanted := make(map[netip.Addr]bool)
	var families []model.Family
	for _, a := range addresses {
		wanted[a] = true
		if f := model.FamilyOf(a); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	var k Netlink
	if len(wanted) == 1 {
		k.From = addresses[0] // the kernel compares with one address only
	}
	all := make(map[Endpoint]int)
	for _, family := range families {
		for _, p := range model.Protocols {
			counts, err := count(k, scope{family, p}, func(f *Flow) bool {
				return wanted[f.Answers.Addr()] && f.Dialled != f.Answers && !f.Closing && (include == nil || include(f))
			})
			if err != nil {
				return nil, fmt.Errorf("count connections: %w", err)
			}
			for at, n := range counts {
				all[Endpoint{p, at}] = n
			}
		}
	}
	return all, nil
}

// count counts the flows of one family and protocol that include accepts.
func count(k Kernel, s scope, include func(*Flow) bool) (counts map[netip.AddrPort]int, err error) {
	err = netlinkio.Retry(netlinkio.Fades, func() error {
		counts = make(map[netip.AddrPort]int)
		return k.List(s.family, s.protocol, func(f Flow) {
			if include(&f) {
				counts[f.Answers]++
			}
		})
	})
	return counts, err
}
