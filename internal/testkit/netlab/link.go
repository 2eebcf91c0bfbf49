package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

const uplink = "uplink" // the name of both ends between client and node

// connectClient links client and node, each the default gateway of the other:
// rules that refuse or drop on the node presuppose a route to every address.
func (l *Lab) connectClient() error {
	if err := l.veth(uplink, l.Client, uplink); err != nil {
		return err
	}
	ends := []struct{ host, gateway *Host }{{l.Node, l.Client}, {l.Client, l.Node}}
	for _, e := range ends {
		err := e.host.Do(func() error {
			err := addAddresses(uplink,
				netip.PrefixFrom(e.host.IPv4, uplinkv4.Bits()), netip.PrefixFrom(e.host.IPv6, uplinkv6.Bits()))
			if err != nil {
				return err
			}
			return addDefaultRoutes(uplink, e.gateway.IPv4, e.gateway.IPv6)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// connectPod links a pod and the node. The node has the same gateway address
// on the links of all pods, and a route for each pod alone.
func (l *Lab) connectPod(pod *Host) error {
	return l.Node.route(pod, l.Gateway(pod, model.IPv4), l.Gateway(pod, model.IPv6))
}

func (l *Lab) addBridge() error {
	return l.Node.Do(func() error {
		if err := addBridge(Bridge); err != nil {
			return err
		}
		return addAddresses(Bridge,
			netip.PrefixFrom(nth(BridgeCIDRv4, 1), BridgeCIDRv4.Bits()), netip.PrefixFrom(nth(BridgeCIDRv6, 1), BridgeCIDRv6.Bits()))
	})
}

// addBridge adds a bridge to the namespace of the calling thread.
func addBridge(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("add link %s: %w", name, err)
	}
	return linkUp(name)
}

// join makes a link a port of a bridge.
func join(bridge, port string) (netlink.Link, error) {
	master, err := findLink(bridge)
	if err != nil {
		return nil, err
	}
	link, err := findLink(port)
	if err != nil {
		return nil, err
	}
	return link, netlink.LinkSetMaster(link, master)
}

// connectBridged links a pod to the bridge.
func (l *Lab) connectBridged(pod *Host) error {
	if err := l.veth(pod.Name, pod, "eth0"); err != nil {
		return err
	}
	err := l.Node.Do(func() error {
		port, err := join(Bridge, pod.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetHairpin(port, true)
	})
	if err != nil {
		return err
	}
	return pod.Do(func() error {
		if err := addAddresses("eth0",
			netip.PrefixFrom(pod.IPv4, BridgeCIDRv4.Bits()), netip.PrefixFrom(pod.IPv6, BridgeCIDRv6.Bits())); err != nil {
			return err
		}
		return addDefaultRoutes("eth0", nth(BridgeCIDRv4, 1), nth(BridgeCIDRv6, 1))
	})
}

// veth links the node to a peer and brings both ends up.
func (l *Lab) veth(name string, peer *Host, peerName string) error {
	if err := l.Node.Do(func() error { return addVeth(name, peer.Handle(), peerName) }); err != nil {
		return err
	}
	return peer.Do(func() error { return linkUp(peerName) })
}

// addVeth links the namespace of the calling thread to another one, and brings its
// own end up.
func addVeth(name string, peer int, peerName string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: peerName, PeerNamespace: netlink.NsFd(peer)}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add link %s: %w", name, err)
	}
	return linkUp(name)
}

// AddAddress gives the host one more address.
func (h *Host) AddAddress(a netip.Addr) error {
	return h.Do(func() error { return addAddresses("lo", single(a)) })
}

// RemoveAddress takes an address away that AddAddress gave.
func (h *Host) RemoveAddress(a netip.Addr) error {
	return h.Do(func() error { return removeAddresses("lo", single(a)) })
}

// Alias gives the host one more address per family, and returns the host as a
// client that dials from these.
func (h *Host) Alias(v4, v6 netip.Addr) (*Host, error) {
	alias := &Host{Namespace: h.Namespace, Name: h.Name, NodeName: h.NodeName, IPv4: v4, IPv6: v6, alias: true}
	alias.port.Store(firstPort)
	return alias, errors.Join(h.AddAddress(v4), h.AddAddress(v6))
}

func findLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return link, nil
}

func linkUp(name string) error {
	link, err := findLink(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring link %s up: %w", name, err)
	}
	return nil
}

func removeAddresses(name string, addrs ...netip.Prefix) error {
	link, err := findLink(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
			return fmt.Errorf("remove address %s: %w", a.Addr(), err)
		}
	}
	return nil
}

func addAddresses(name string, addrs ...netip.Prefix) error {
	link, err := findLink(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s to link %s: %w", a, name, err)
		}
	}
	switch {
	case name == "lo":
		return waitForDelivery(addrs)
	case link.Attrs().RawFlags&unix.IFF_NOARP != 0: // nothing asks for neighbours
		return nil
	}
	return waitForNeighbours(name, addrs)
}

// addLinkRoutes says that addresses are reached over a link without a gateway.
func addLinkRoutes(name string, addrs ...netip.Addr) error {
	return addRoutes(name, addrs, func(a netip.Addr) netlink.Route {
		return netlink.Route{Dst: ipNet(single(a)), Scope: netlink.SCOPE_LINK}
	})
}

func addDefaultRoutes(name string, gateways ...netip.Addr) error {
	return addRoutes(name, gateways, func(a netip.Addr) netlink.Route {
		everything, _ := netip.AddrFromSlice(make([]byte, a.BitLen()/8))
		return netlink.Route{Dst: ipNet(netip.PrefixFrom(everything, 0)), Gw: a.AsSlice()}
	})
}

// RemoveDefaultRoutes leaves the host with the routes to its links.
func (h *Host) RemoveDefaultRoutes() error {
	return h.Do(func() error {
		for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			if err := netlink.RouteDel(&netlink.Route{Dst: ipNet(netip.PrefixFrom(a, 0))}); err != nil {
				return fmt.Errorf("remove default route: %w", err)
			}
		}
		return nil
	})
}

func addRoutes(name string, addrs []netip.Addr, route func(netip.Addr) netlink.Route) error {
	link, err := findLink(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		r := route(a)
		r.LinkIndex = link.Attrs().Index
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("add route of %s over link %s: %w", a, name, err)
		}
	}
	return nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Leave takes the addresses of the host from its link: no host answers for them then.
func (h *Host) Leave() error {
	return h.Do(func() error { return removeAddresses("eth0", single(h.IPv4), single(h.IPv6)) })
}
