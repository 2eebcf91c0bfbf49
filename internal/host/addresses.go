package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

func InterfaceAddresses() ([]netip.Addr, error) {
	list, err := listAddresses()
	out := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		out = append(out, addressOf(a))
	}
	return out, err
}

// ipvsInterfaces have the ClusterIPs of all Services, which are not addresses of
// the node: the interfaces of kube-proxy's mode ipvs and of kube-router.
var ipvsInterfaces = []string{"kube-ipvs0", "kube-dummy-if"}

// ServingAddresses returns the addresses of this machine's interfaces that may serve
// NodePorts or health checks of Services: all except addresses of IPVS interfaces and
// IPv6 link-local ones, each once and sorted.
func ServingAddresses() ([]netip.Addr, error) {
	foreign := make(map[int]bool)
	for _, name := range ipvsInterfaces {
		link, err := netlink.LinkByName(name)
		var absent netlink.LinkNotFoundError
		switch {
		case err == nil:
			foreign[link.Attrs().Index] = true
		case !errors.As(err, &absent):
			return nil, fmt.Errorf("look for interface %s: %w", name, err)
		}
	}
	list, err := listAddresses()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, l := range list {
		if a := addressOf(l); !foreign[l.LinkIndex] && !isLinkLocal(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// Networks returns the networks of this machine's interfaces, which the kernel reaches without a
// gateway, each once: also the other end of a link with two addresses, but no address alone.
func Networks() ([]netip.Prefix, error) {
	list, err := listAddresses()
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, a := range list {
		network, own := a.IPNet, addressOf(a)
		if a.Peer != nil {
			network = a.Peer
		}
		to, _ := netip.AddrFromSlice(network.IP)
		bits, _ := network.Mask.Size()
		if p := netip.PrefixFrom(to.Unmap(), bits).Masked(); !isLinkLocal(own) && (!p.IsSingleIP() || p.Addr() != own) {
			out = append(out, p)
		}
	}
	return model.MergePrefixes(out), nil
}

func isLinkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

func listAddresses() ([]netlink.Addr, error) {
	list, err := netlinkio.Addresses(nil)
	if err != nil {
		return nil, fmt.Errorf("list interface addresses: %w", err)
	}
	return list, nil
}

func addressOf(a netlink.Addr) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.IP)
	return addr.Unmap()
}

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
	followUpdates(ctx, nil, netlinkio.SubscribeToAddresses, func(netlink.AddrUpdate) { changed() }, changed, log)
}
