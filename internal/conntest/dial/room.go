package dial

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/netspace"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Room is a client beside the machine: a network namespace without a name, a pair of interfaces
// and addresses that no route of the machine covers, except a default route. The machine gets the
// interface and a route to each address, and an address only for a relay. The kernel removes all of
// that when the process ends, however it ends.
type Room struct {
	*netspace.Space
	Device  string // of the machine, that packets of the client come in from
	made    bool   // Device is ours
	clients map[model.Family]netip.Addr
}

// Addresses of clients that are used if none are given: of the ranges for benchmarks of network
// devices (RFC 2544, RFC 5180), which no network uses.
var freeAddresses = map[model.Family][]netip.Addr{
	model.IPv4: {netip.MustParseAddr("198.18.255.254"), netip.MustParseAddr("198.19.255.254"), netip.MustParseAddr("198.18.254.254")},
	model.IPv6: {netip.MustParseAddr("2001:2:0:ffff::fffe"), netip.MustParseAddr("2001:2:0:fffe::fffe")},
}

// Next hops of the client. The machine takes packets by their hardware address; its interface has
// the address only if rules redirect the packets, which leads them to an address of the interface.
var nextHops = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("169.254.1.1"), model.IPv6: netip.MustParseAddr("fe80::1")}

// OpenRoom makes a room whose client has an address of each family: the one that is given, else
// one that this machine has no route to. In the redirected families, rules redirect packets to this
// machine.
func OpenRoom(families, redirected []model.Family, given []netip.Addr) (*Room, error) {
	clients, err := clientAddresses(families, given)
	if err != nil {
		return nil, err
	}
	space, err := netspace.Open()
	if err != nil {
		return nil, err
	}
	r := &Room{Space: space, Device: fmt.Sprintf("nftest%d", os.Getpid()), clients: clients}
	if err := r.connect(redirected); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Client returns the address of the client; the zero Addr: it has none of the family.
func (r *Room) Client(f model.Family) netip.Addr { return r.clients[f] }

// Close removes everything.
func (r *Room) Close() error {
	if !r.made {
		return r.Space.Close()
	}
	link, err := netlink.LinkByName(r.Device)
	if err == nil {
		err = netlink.LinkDel(link) // the other end and the routes go with it
	} else if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = nil
	}
	return errors.Join(err, r.Space.Close())
}

func clientAddresses(families []model.Family, given []netip.Addr) (map[model.Family]netip.Addr, error) {
	out := make(map[model.Family]netip.Addr)
	for _, f := range families {
		all, a, used := freeAddresses[f], netip.Addr{}, ""
		i := slices.IndexFunc(given, func(a netip.Addr) bool { return model.FamilyOf(a) == f })
		if i >= 0 {
			all = given[i : i+1]
		}
		for _, a = range all {
			var err error
			if used, err = isRouted(a); err != nil {
				return nil, err
			}
			if used == "" {
				break
			}
		}
		switch {
		case used != "" && i >= 0:
			return nil, fmt.Errorf("%s cannot be the address of the client: this machine has %s", a, used)
		case used != "":
			return nil, fmt.Errorf("this machine has routes to all of %s: give the client an unused %s address", terminal.List(all, len(all)), f)
		}
		out[f] = a
	}
	return out, nil
}

// isRouted returns the address or the route of this machine that has an address, in words; empty:
// it has none but a default route.
func isRouted(a netip.Addr) (string, error) {
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := netlinkio.List(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return "", fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if ones, _ := r.Dst.Mask.Size(); ones > 0 && r.Dst.Contains(a.AsSlice()) {
			return "a route to " + r.Dst.String(), nil
		}
	}
	return "", nil
}

func (r *Room) connect(redirected []model.Family) error {
	const peer = "eth0"
	attrs := netlink.NewLinkAttrs()
	attrs.Name = r.Device
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerNamespace: netlink.NsFd(r.Handle())}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add interface %s: %w", r.Device, err)
	}
	r.made = true
	var inside netlink.Link
	err := r.Do(func() (err error) {
		inside, err = bringUp("lo", peer)
		return err
	})
	if err != nil {
		return err
	}
	outside, err := bringUp(r.Device)
	if err != nil {
		return err
	}
	if err := errors.Join(awaitCarrier(outside), r.Do(func() error { return awaitCarrier(inside) })); err != nil {
		return err
	}
	for f := range r.clients {
		if err := r.Do(func() error { return addClient(inside, r.clients[f], nextHops[f], outside) }); err != nil {
			return err
		}
		if err := addRoute(outside, r.clients[f], inside); err != nil {
			return err
		}
	}
	for _, f := range redirected {
		if err := addAddress(outside, nextHops[f], netlink.SCOPE_LINK); err != nil {
			return err
		}
	}
	return nil
}

// bringUp brings interfaces up, and returns the last one.
func bringUp(names ...string) (link netlink.Link, err error) {
	for _, name := range names {
		if link, err = netlink.LinkByName(name); err != nil {
			return nil, fmt.Errorf("find interface %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("bring interface %s up: %w", name, err)
		}
	}
	return link, nil
}

// carrierPatience is how long an interface may take to see that its other end is up, in milliseconds.
const carrierPatience = 5000

// awaitCarrier waits until an interface sends packets: the kernel drops them until it has noticed the carrier,
// which a thread of its own does.
func awaitCarrier(link netlink.Link) error {
	for range carrierPatience {
		now, err := netlink.LinkByIndex(link.Attrs().Index)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", link.Attrs().Name, err)
		}
		if now.Attrs().OperState == netlink.OperUp {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("interface %s has no carrier", link.Attrs().Name)
}

// addAddress gives an interface an address, which it uses at once.
func addAddress(link netlink.Link, a netip.Addr, scope netlink.Scope) error {
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: single(a), Flags: unix.IFA_F_NODAD, Scope: int(scope)}); err != nil {
		return fmt.Errorf("add address %s to interface %s: %w", a, link.Attrs().Name, err)
	}
	return nil
}

// addClient gives an interface an address, and a default route over a next hop, which the other end is.
func addClient(link netlink.Link, a, nextHop netip.Addr, other netlink.Link) error {
	if err := addAddress(link, a, netlink.SCOPE_UNIVERSE); err != nil {
		return err
	}
	if err := addNeighbour(link, nextHop, other); err != nil {
		return err
	}
	everything := &net.IPNet{IP: make(net.IP, a.BitLen()/8), Mask: make(net.IPMask, a.BitLen()/8)}
	err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: nextHop.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
	if err != nil {
		return fmt.Errorf("add default route of the client over %s: %w", nextHop, err)
	}
	return nil
}

func addRoute(link netlink.Link, a netip.Addr, other netlink.Link) error {
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(a), Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("add route to %s over interface %s: %w", a, link.Attrs().Name, err)
	}
	return addNeighbour(link, a, other)
}

// addNeighbour spares the first packet a question about the hardware address of the other end,
// and works without an address that could answer it.
func addNeighbour(link netlink.Link, a netip.Addr, other netlink.Link) error {
	err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: other.Attrs().HardwareAddr})
	if err != nil {
		return fmt.Errorf("add neighbour %s: %w", a, err)
	}
	return nil
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}
