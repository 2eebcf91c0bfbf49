package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

const (
	// addressProtocol marks the addresses of nftproxy, for "ip -details address" too. linux/if_addr.h
	// reserves 0 to 3 for the kernel, and leaves the others to programs.
	addressProtocol = 78
	// attributeProtocol is IFA_PROTO of linux/if_addr.h. Kernels before 5.18 ignore it.
	attributeProtocol = 11
)

// neverSource is a struct ifa_cacheinfo of linux/if_addr.h: the lifetimes as a preferred address, and as a valid one,
// in seconds, and two times that the kernel sets. IPv6 addresses that are not preferred are no source of
// packets while the interface has another address (RFC 6724, 5): what the machine sends, and masquerades, must not
// depend on an address that another machine may have tomorrow. Of IPv4, the kernel takes the first address.
var neverSource = slices.Concat(encodeNative(0), encodeNative(forever), make([]byte, 8))

// forever is an infinite lifetime (INFINITY_LIFE_TIME of net/addrconf.h).
const forever = 0xffffffff

func encodeNative(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// LinkAddress is an address of an interface.
type LinkAddress struct {
	Marked    bool // an nftproxy has added it; kernels before 5.18 do not know
	Tentative bool // the kernel still asks whether another machine has it (IPv6)
	Failed    bool // another machine has it (IPv6)
	Network   bool // it was added with a network, so not by nftproxy (IPv6)
}

type Link struct {
	Index int
	Up    bool // with a carrier
	// Shared reports whether there are neighbours, who look for addresses.
	Shared bool
}

// Neighbourhood is the addresses that this machine announces to its neighbours.
type Neighbourhood struct{ Log *slog.Logger }

// List returns the addresses of this machine, and all interfaces by name. It leaves out IPv4
// addresses with a network: an interface can have the same address without one besides.
func (Neighbourhood) List() (addresses map[model.InterfaceAddress]LinkAddress, links map[string]Link, err error) {
	list, err := netlinkio.List(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list interfaces: %w", err)
	}
	links = make(map[string]Link, len(list))
	names := make(map[uint32]string, len(list))
	for _, l := range list {
		a := l.Attrs()
		names[uint32(a.Index)] = a.Name
		const up, alone = unix.IFF_UP | unix.IFF_RUNNING, unix.IFF_LOOPBACK | unix.IFF_NOARP
		links[a.Name] = Link{Index: a.Index, Up: a.RawFlags&up == up, Shared: a.RawFlags&alone == 0 && len(a.HardwareAddr) == macLength}
	}
	var messages [][]byte
	err = netlinkio.Complete(func() (err error) {
		r := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		messages, err = r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list interface addresses: %w", err)
	}
	addresses = make(map[model.InterfaceAddress]LinkAddress)
	for _, m := range messages {
		index, a, is, err := decodeAddress(m)
		if err != nil {
			return nil, nil, fmt.Errorf("list interface addresses: %w", err)
		}
		if name := names[index]; name != "" && a.IsValid() {
			addresses[model.InterfaceAddress{Interface: name, Address: a}] = is
		}
	}
	return addresses, links, nil
}

// decodeAddress returns what a message (struct ifaddrmsg) says; no address: it does not count.
func decodeAddress(m []byte) (index uint32, a netip.Addr, is LinkAddress, err error) {
	if len(m) < unix.SizeofIfAddrmsg {
		return 0, a, is, errors.New("a message is too short")
	}
	flags := uint32(m[2])
	var peer []byte
	for attributes := netlinkio.Read(m[unix.SizeofIfAddrmsg:], &err); attributes.Next(); {
		switch attributes.Type {
		case unix.IFA_LOCAL:
			a, _ = netip.AddrFromSlice(attributes.Data)
		case unix.IFA_ADDRESS:
			peer = attributes.Data
		case unix.IFA_FLAGS:
			if len(attributes.Data) == 4 {
				flags = binary.NativeEndian.Uint32(attributes.Data)
			}
		case attributeProtocol:
			is.Marked = slices.Equal(attributes.Data, []byte{addressProtocol})
		}
	}
	if !a.IsValid() { // IPv6 without a peer
		a, _ = netip.AddrFromSlice(peer)
	}
	if is.Network = int(m[1]) != a.BitLen(); is.Network && a.Is4() {
		a = netip.Addr{}
	}
	is.Tentative = flags&unix.IFA_F_TENTATIVE != 0
	is.Failed = flags&unix.IFA_F_DADFAILED != 0
	return binary.NativeEndian.Uint32(m[4:]), a, is, err
}

// Add adds an address to an interface, with the mark of nftproxy. Of an IPv6 address, the
// kernel then asks whether another machine has it.
func (Neighbourhood) Add(index int, a netip.Addr) error {
	err := changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, index, a)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// Remove removes an address from an interface; there may be none.
func (Neighbourhood) Remove(index int, a netip.Addr) error {
	err := changeAddress(unix.RTM_DELADDR, unix.NLM_F_ACK, index, a)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func changeAddress(kind, flags, index int, a netip.Addr) error {
	r := nl.NewNetlinkRequest(kind, flags)
	m := nl.NewIfAddrmsg(nl.GetIPFamily(net.IP(a.AsSlice())))
	m.Index, m.Prefixlen = uint32(index), uint8(a.BitLen())
	r.AddData(m)
	r.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	r.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	if kind == unix.RTM_NEWADDR {
		r.AddData(nl.NewRtAttr(attributeProtocol, []byte{addressProtocol}))
		if a.Is6() {
			r.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, neverSource))
		}
	}
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Follow is [FollowAddresses], and calls changed after each change of an interface as well.
func (n Neighbourhood) Follow(ctx context.Context, changed func()) {
	go FollowAddresses(ctx, changed, n.Log)
	followUpdates(ctx, nil, netlinkio.SubscribeToLinks, func(netlink.LinkUpdate) { changed() }, changed, n.Log)
}
