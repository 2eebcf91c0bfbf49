package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Kinds are the kinds of links that AddBehind makes.
var Kinds = []string{"vxlan", "vlan", "bond", "vlan-on-bond", "lacp", "vxlan-ipv6", "geneve", "ipip", "wireguard"}

// Ranges of the ends of these links, and of what tunnels go through. The kind is in the third byte or the fourth
// word.
const (
	linkv4, linkv6   = "10.129.%d.0/24", "fd00:10:129:%d::/64"
	outerv4, outerv6 = "10.130.%d.0/24", "fd00:10:130:%d::/64"
)

// AddBehind adds a pod of another machine, to which a link of a kind leads. Pod and link are named as the kind, and the
// pod shares the namespace of its machine. It has no node, so that its own connections to it are masqueraded.
func (l *Lab) AddBehind(kind string) (*Host, error) {
	n := slices.Index(Kinds, kind)
	if n < 0 {
		return nil, fmt.Errorf("no kind %q of links; there are %v", kind, Kinds)
	}
	v4, v6 := network(linkv4, n), network(linkv6, n)
	other, err := newHost(kind, v4, v6, 2)
	if err != nil {
		return nil, err
	}
	l.behind = append(l.behind, other)
	if err := l.link(kind, other, n); err != nil {
		return nil, fmt.Errorf("link the node to another machine by %s: %w", kind, err)
	}
	pod, err := other.Alias(nth(RemoteCIDRv4, 100+n), nth(RemoteCIDRv6, 100+n))
	if err != nil {
		return nil, err
	}
	return pod, errors.Join(
		l.Node.AddRoute(single(pod.IPv4), other.IPv4), l.Node.AddRoute(single(pod.IPv6), other.IPv6),
		other.Do(func() error { return addDefaultRoutes(kind, nth(v4, 1), nth(v6, 1)) }))
}

func network(format string, n int) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf(format, n)) }

// Cables returns the devices below a link, at both of its ends.
func Cables(kind string) []string {
	if strings.Contains(kind, "bond") || kind == "lacp" {
		return []string{kind + "-a", kind + "-b"}
	}
	return []string{kind + "-a"}
}

// link makes the device of a kind at both ends.
func (l *Lab) link(kind string, other *Host, n int) error {
	for _, name := range Cables(kind) {
		if err := l.veth(name, other, name); err != nil {
			return err
		}
	}
	for i, h := range []*Host{l.Node, other} {
		err := h.Do(func() error {
			if err := addLink(kind, n, i+1, 2-i); err != nil {
				return err
			}
			return linkUp(kind)
		})
		if err != nil {
			return err
		}
	}
	if kind == "lacp" {
		for _, h := range []*Host{l.Node, other} {
			if err := h.Do(func() error { return awaitAggregate(Cables(kind)) }); err != nil {
				return err
			}
		}
	}
	// Addresses of IPv6 wait for the carrier, which a bond has when both ends are up.
	for i, h := range []*Host{l.Node, other} {
		err := h.Do(func() error {
			v4, v6 := network(linkv4, n), network(linkv6, n)
			return addAddresses(kind, netip.PrefixFrom(nth(v4, i+1), v4.Bits()), netip.PrefixFrom(nth(v6, i+1), v6.Bits()))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addLink adds a device of a kind to the namespace of the calling thread. Tunnels have their own and the other end's
// number in the outer network.
func addLink(kind string, n, own, other int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = kind
	cables := Cables(kind)
	switch kind {
	case "vlan":
		return addVLAN(attrs, cables[0])
	case "bond":
		return addBond(kind, netlink.BOND_MODE_ACTIVE_BACKUP, cables)
	case "lacp":
		return addBond(kind, netlink.BOND_MODE_802_3AD, cables)
	case "vlan-on-bond":
		const below = "below"
		if err := addBond(below, netlink.BOND_MODE_ACTIVE_BACKUP, cables); err != nil {
			return err
		}
		if err := linkUp(below); err != nil {
			return err
		}
		return addVLAN(attrs, below)
	}
	v4, v6 := network(outerv4, n), network(outerv6, n)
	if err := addAddresses(cables[0], netip.PrefixFrom(nth(v4, own), v4.Bits()), netip.PrefixFrom(nth(v6, own), v6.Bits())); err != nil {
		return err
	}
	outer := v4
	if kind == "vxlan-ipv6" {
		outer = v6
	}
	return addTunnel(attrs, uint32(n+1), nth(outer, own), nth(outer, other))
}

func addVLAN(attrs netlink.LinkAttrs, on string) error {
	parent, err := findLink(on)
	if err != nil {
		return err
	}
	attrs.ParentIndex = parent.Attrs().Index
	const id = 100
	return netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: id})
}
