package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// InterfaceAddresses returns the addresses of this machine's interfaces.
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
