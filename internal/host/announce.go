package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Announce adds an address to an interface, unless that has it, and tells its network: with a
// gratuitous ARP (RFC 5227), or an unsolicited neighbour advertisement (RFC 4861, 7.2.6). added
// reports that the interface did not have the address. The announcement needs CAP_NET_RAW: without it,
// the error is about that alone, and the address is there.
func Announce(link string, a netip.Addr) (added bool, err error) {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return false, fmt.Errorf("find interface %s: %w", link, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD // another machine may have it until it sees the announcement
	}
	switch err := netlink.AddrAdd(l, addr); {
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("add %s to %s: %w", a, link, err)
	}
	if mac := l.Attrs().HardwareAddr; len(mac) == 6 {
		if err := send(l.Attrs().Index, frame(mac, a)); err != nil {
			return true, fmt.Errorf("announce %s on %s: %w", a, link, err)
		}
	}
	return true, nil
}

// Withdraw removes an address from an interface; removed reports that it was there.
func Withdraw(link string, a netip.Addr) (removed bool, err error) {
	l, err := netlink.LinkByName(link)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find interface %s: %w", link, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	switch err := netlink.AddrDel(l, addr); {
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove %s from %s: %w", a, link, err)
	}
	return true, nil
}

// send sends a frame.
func send(index int, frame []byte) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6})
	return errors.Join(err, unix.Close(fd))
}

// frame returns the Ethernet frame that tells all neighbours where an address is.
func frame(mac net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		return arp(mac, a)
	}
	return advertisement(mac, a)
}

// arp returns a request of an address for itself, which all neighbours learn from.
func arp(mac net.HardwareAddr, a netip.Addr) []byte {
	b := ethernet(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, unix.ETH_P_ARP)
	b = binary.BigEndian.AppendUint16(b, 1) // Ethernet
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, 6, 4, 0, 1) // lengths; request
	b = append(append(b, mac...), a.AsSlice()...)
	return append(append(b, 0, 0, 0, 0, 0, 0), a.AsSlice()...)
}

// advertisement returns a neighbour advertisement to all nodes that overrides what they know.
func advertisement(mac net.HardwareAddr, a netip.Addr) []byte {
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
	b := ethernet(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, mac, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, unix.IPPROTO_ICMPV6, 255)
	return append(append(append(b, a.AsSlice()...), all...), body...)
}

func ethernet(to, from net.HardwareAddr, protocol uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append([]byte{}, to...), from...), protocol)
}
