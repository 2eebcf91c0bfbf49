package host

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// macLength is the length of addresses of Ethernet.
const macLength = 6

// Announce tells the neighbours on an interface that this machine has an address: with a gratuitous
// ARP (RFC 5227), or an unsolicited neighbour advertisement (RFC 4861, 7.2.6). It needs CAP_NET_RAW.
func (Neighbourhood) Announce(link string, a netip.Addr) error {
	if a.Is4() {
		return sendFrame(link, a, arpAnnouncement)
	}
	return sendFrame(link, a, neighbourAdvertisement)
}

// Probe asks the neighbours on an interface whether one of them has an IPv4 address (RFC 5227,
// 2.1.1). [Neighbourhood.Listen] has their answers. It needs CAP_NET_RAW.
func (Neighbourhood) Probe(link string, a netip.Addr) error { return sendFrame(link, a, arpProbe) }

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

// arpAnnouncement returns a request of an address for itself, which all neighbours learn from.
func arpAnnouncement(mac net.HardwareAddr, a netip.Addr) []byte {
	return arpRequest(mac, a.AsSlice(), a)
}

// arpProbe returns a request that names no sender, so that neighbours learn nothing from it.
func arpProbe(mac net.HardwareAddr, a netip.Addr) []byte {
	return arpRequest(mac, make([]byte, net.IPv4len), a)
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
