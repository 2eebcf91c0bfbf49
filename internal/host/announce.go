package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// macLength is the length of addresses of Ethernet.
const macLength = 6

// Announce tells the neighbours on an interface that this machine has an address: with a gratuitous
// ARP (RFC 5227), or an unsolicited neighbour advertisement (RFC 4861, 7.2.6). It needs CAP_NET_RAW.
func (Neighbourhood) Announce(link string, a netip.Addr) error {
	if a.Is4() { // a request for itself, which all neighbours learn from
		return sendFrame(link, a, func(mac net.HardwareAddr, a netip.Addr) []byte { return arpRequest(mac, a.AsSlice(), a) })
	}
	return sendFrame(link, a, neighbourAdvertisement)
}

// Probe asks the neighbours on an interface whether one of them has an IPv4 address (RFC 5227,
// 2.1.1). [Neighbourhood.Listen] has their answers. It needs CAP_NET_RAW.
func (Neighbourhood) Probe(link string, a netip.Addr) error {
	noSender := make([]byte, net.IPv4len) // so that neighbours learn nothing from it
	return sendFrame(link, a, func(mac net.HardwareAddr, a netip.Addr) []byte { return arpRequest(mac, noSender, a) })
}

func sendFrame(link string, a netip.Addr, frame func(net.HardwareAddr, netip.Addr) []byte) error {
	l, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.Sendto(fd, frame(l.HardwareAddr, a), 0, &unix.SockaddrLinklayer{Ifindex: l.Index, Halen: macLength})
	return errors.Join(err, unix.Close(fd))
}

func arpRequest(mac net.HardwareAddr, sender []byte, target netip.Addr) []byte {
	b := ethernetHeader(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, unix.ETH_P_ARP)
	b = binary.BigEndian.AppendUint16(b, 1) // Ethernet
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, macLength, net.IPv4len, 0, 1) // lengths; request
	b = append(append(b, mac...), sender...)
	return append(append(b, 0, 0, 0, 0, 0, 0), target.AsSlice()...)
}

// neighbourAdvertisement returns a neighbour advertisement to all nodes that overrides what they know.
func neighbourAdvertisement(mac net.HardwareAddr, a netip.Addr) []byte {
	all := netip.MustParseAddr("ff02::1").AsSlice()
	body := []byte{136, 0, 0, 0, 0x20, 0, 0, 0} // type, code, checksum; flag "override"
	body = append(body, a.AsSlice()...)
	body = append(append(body, 2, 1), mac...) // option: target link-layer address
	sum := uint32(len(body)) + unix.IPPROTO_ICMPV6
	for _, part := range [][]byte{a.AsSlice(), all, body} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(body[2:], ^uint16(sum))
	b := ethernetHeader(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, mac, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, unix.IPPROTO_ICMPV6, 255)
	return append(append(append(b, a.AsSlice()...), all...), body...)
}

func ethernetHeader(to, from net.HardwareAddr, protocol uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append([]byte{}, to...), from...), protocol)
}

// Claim is what another machine says about an address.
type Claim struct {
	Address netip.Addr
	MAC     net.HardwareAddr
	Probe   bool // it does not have the address: it asks for it as well, and is to get it
}

// Listen calls claimed for each ARP message and neighbour advertisement with which another
// machine on an interface claims an address, and ended when there are no more of them: ctx is done, or
// the interface is gone. It needs CAP_NET_RAW.
func (Neighbourhood) Listen(ctx context.Context, link string, claimed func(Claim), ended func()) error {
	l, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	arp, err := openPacketSocket(l.Index, unix.ETH_P_ARP, nil)
	if err != nil {
		return err
	}
	advertisements, err := openPacketSocket(l.Index, unix.ETH_P_IPV6, advertisementsOnly)
	if err != nil {
		return errors.Join(err, arp.Close())
	}
	read := func(f *os.File, parse func([]byte) (Claim, bool)) {
		frame := make([]byte, 256)
		for {
			n, err := f.Read(frame)
			if err != nil {
				return
			}
			c, ok := parse(frame[:n])
			if ok && !isOwnMAC(c.MAC) && (!c.Probe || bytes.Compare(c.MAC, l.HardwareAddr) < 0) {
				claimed(c)
			}
		}
	}
	limited, cancel := context.WithCancel(ctx)
	context.AfterFunc(limited, func() { _, _ = arp.Close(), advertisements.Close() })
	var both sync.WaitGroup
	both.Go(func() { defer cancel(); read(arp, parseARP) })
	both.Go(func() { defer cancel(); read(advertisements, parseAdvertisement) })
	go func() { both.Wait(); ended() }()
	return nil
}

// isOwnMAC reports whether an interface of this machine has a hardware address: the kernel answers for
// the addresses of all interfaces on each of them.
func isOwnMAC(mac net.HardwareAddr) bool {
	all, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(all, func(l net.Interface) bool { return bytes.Equal(l.HardwareAddr, mac) })
}

const (
	ethernetLength = 14
	ipv6Length     = 40
	// ndAdvertisement is the type of ICMPv6 of a neighbour advertisement (RFC 4861, 4.4).
	ndAdvertisement = 136
)

// advertisementsOnly lets neighbour advertisements pass: without it, the process would read all packets.
var advertisementsOnly = []bpf.Instruction{
	bpf.LoadAbsolute{Off: ethernetLength + 6, Size: 1}, // next header
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
	bpf.LoadAbsolute{Off: ethernetLength + ipv6Length, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ndAdvertisement, SkipTrue: 1},
	bpf.RetConstant{Val: 256},
	bpf.RetConstant{Val: 0},
}

func openPacketSocket(index int, protocol uint16, filter []bpf.Instruction) (*os.File, error) {
	// Without a protocol, it receives nothing before it is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "packets")
	if filter != nil {
		err = setFilter(fd, filter)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))})
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func setFilter(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("assemble a filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// parseARP returns the claim of an ARP message (RFC 826): its sender has the address, or probes it.
func parseARP(frame []byte) (c Claim, ok bool) {
	if len(frame) < ethernetLength+28 {
		return c, false
	}
	b := frame[ethernetLength:]
	if !bytes.Equal(b[:6], []byte{0, 1, unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff, macLength, net.IPv4len}) {
		return c, false
	}
	c = Claim{Address: netip.AddrFrom4([4]byte(b[14:])), MAC: slices.Clone(b[8:14])}
	if c.Address.IsUnspecified() {
		c.Address, c.Probe = netip.AddrFrom4([4]byte(b[24:])), true
	}
	return c, true
}

func parseAdvertisement(frame []byte) (c Claim, ok bool) {
	const target = ethernetLength + ipv6Length + 8
	if len(frame) < target+net.IPv6len {
		return c, false
	}
	return Claim{Address: netip.AddrFrom16([16]byte(frame[target:])), MAC: slices.Clone(frame[6:12])}, true
}
