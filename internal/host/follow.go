package host

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// AddressesByInterface returns the addresses of this machine with their interfaces, sorted, but not
// of the interfaces of IPVS, which have those of Services.
func AddressesByInterface() (out []model.InterfaceAddress, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		if slices.Contains(ipvsInterfaces, l.Name) {
			continue
		}
		all, err := l.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of interface %s: %w", l.Name, err)
		}
		for _, a := range all {
			if p, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(p.IP); ok {
					out = append(out, model.InterfaceAddress{Interface: l.Name, Address: ip.Unmap()})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b model.InterfaceAddress) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return out, nil
}

// FollowAddresses calls changed when it begins, and after each change of an address, until ctx
// ends. Changes at the same time may be one call.
func FollowAddresses(ctx context.Context, changed func(), log *slog.Logger) {
	s, err := subscribeToAddresses(ctx)
	if err != nil {
		logUnwatched(log, err)
		s = subscribeAgain(ctx, new(backoff), log)
	}
	if s == nil {
		return
	}
	changed() // since they were listed
	followAddresses(ctx, s, func(netip.Addr) { changed() }, changed, log)
}
