package simulation

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/feature/vitals"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/simulation"
)

// pairOfLinks is the interfaces of a network namespace and their model, which change together.
type pairOfLinks struct {
	t     *testing.T
	ns    *netlab.Namespace
	real  host.Neighbourhood
	links *simulation.Links
	model vitals.Links
}

// addresses that come and go.
var addresses = []netip.Addr{
	netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"),
}

// TestLinks: the model of interfaces takes what the kernel takes, and loses addresses when the kernel does.
func TestLinks(t *testing.T) {
	names := []string{"eth1", "eth2"}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPairOfLinks(t, names)
			dice := rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				name, a := names[dice.IntN(len(names))], addresses[dice.IntN(len(addresses))]
				p.change(dice.IntN(8), name, a)
				p.compare(names)
			}
		})
	}
}

func newPairOfLinks(t *testing.T, names []string) *pairOfLinks {
	t.Helper()
	p := &pairOfLinks{t: t, ns: netlab.TestNamespace(t), real: host.Neighbourhood{Log: slog.New(slog.DiscardHandler)}, links: simulation.NewLinks(names...)}
	p.model = p.links.Of(func() bool { return false }, new(atomic.Bool))
	p.do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) })
	for _, name := range names {
		p.do(func() error { return addPair(name) })
	}
	return p
}

// do runs f in the namespace.
func (p *pairOfLinks) do(f func() error) {
	p.t.Helper()
	if err := p.ns.Do(f); err != nil {
		p.t.Fatal(err)
	}
}

// addPair adds an interface with a neighbour, which is up.
func addPair(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer"}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	peer, err := netlink.LinkByName(veth.PeerName)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(peer), netlink.LinkSetUp(veth))
}

// change changes both in one of eight ways.
func (p *pairOfLinks) change(kind int, name string, a netip.Addr) {
	p.t.Helper()
	switch kind {
	case 0, 1, 2:
		p.both("add", name, func(l vitals.Links, index int) error { return l.Add(index, a) })
	case 3:
		p.both("remove", name, func(l vitals.Links, index int) error { return l.Remove(index, a) })
	case 4:
		p.links.Toggle(name)
		p.do(func() error { return toggle(name) })
	case 5:
		p.links.Replace(name)
		p.do(func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkDel(link), addPair(name))
		})
	case 6:
		p.links.TakeOff(model.InterfaceAddress{Interface: name, Address: a})
		p.do(func() error { return takeOff(name, a) })
	case 7:
		p.both("announce", name, func(l vitals.Links, _ int) error { return l.Announce(name, a) })
		if a.Is4() {
			p.both("probe", name, func(l vitals.Links, _ int) error { return l.Probe(name, a) })
		}
		const none = 1 << 20
		p.both("add without interface", name, func(l vitals.Links, _ int) error { return l.Add(none, a) })
		p.both("remove without interface", name, func(l vitals.Links, _ int) error { return l.Remove(none, a) })
	}
}

// both has the kernel and its model do the same: both do it, or both refuse.
func (p *pairOfLinks) both(what, name string, do func(l vitals.Links, index int) error) {
	p.t.Helper()
	in := func(l vitals.Links) error {
		_, links, err := l.List()
		if err != nil {
			p.t.Fatal(err)
		}
		return do(l, links[name].Index)
	}
	err, modelErr := p.ns.Do(func() error { return in(p.real) }), in(p.model)
	if (err == nil) != (modelErr == nil) {
		p.t.Fatalf("%s on %s: the kernel: %v, its model: %v", what, name, err, modelErr)
	}
}

func toggle(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if link.Attrs().RawFlags&1 != 0 { // IFF_UP
		return netlink.LinkSetDown(link)
	}
	return netlink.LinkSetUp(link)
}

// takeOff removes an address if it is there.
func takeOff(name string, a netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	all, err := netlinkio.List(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].IP.String() == a.String() {
			err = errors.Join(err, netlink.AddrDel(link, &all[i]))
		}
	}
	return err
}

// compare waits until both have the same: the kernel notes a carrier a moment later.
func (p *pairOfLinks) compare(names []string) {
	p.t.Helper()
	await.Until(p.t, func() error {
		var held, modelled string
		err := p.ns.Do(func() (err error) { held, err = textOf(p.real, names); return err })
		if err == nil {
			modelled, err = textOf(p.model, names)
		}
		if err != nil {
			return err
		}
		if diff := cmp.Diff(held, modelled); diff != "" {
			return fmt.Errorf("the kernel and its model differ (-kernel +model):\n%s", diff)
		}
		return nil
	})
}

// textOf describes interfaces and their addresses, without indices and link-local addresses.
func textOf(l vitals.Links, names []string) (string, error) {
	on, links, err := l.List()
	if err != nil {
		return "", err
	}
	var lines []string
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("%s up=%t shared=%t\n", name, links[name].Up, links[name].Shared))
	}
	maps.DeleteFunc(on, func(at model.InterfaceAddress, _ host.LinkAddress) bool {
		return !slices.Contains(names, at.Interface) || !slices.Contains(addresses, at.Address)
	})
	for at, is := range on {
		lines = append(lines, fmt.Sprintf("%s %s marked=%t failed=%t network=%t\n", at.Interface, at.Address, is.Marked, is.Failed, is.Network))
	}
	slices.Sort(lines)
	return fmt.Sprint(lines), nil
}
