package test

import (
	order "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// sendFrame sends an IP packet from the client to the node, whatever its destination is.
func (c *cluster) sendFrame(packet []byte) {
	c.t.Helper()
	var gateway net.HardwareAddr
	err := c.Node.Do(func() error {
		link, err := linkOf(c.Node.IPv4)
		if err == nil {
			gateway = link.HardwareAddr
		}
		return err
	})
	protocol := uint16(unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		protocol = unix.ETH_P_IPV6
	}
	err = errors.Join(err, c.Client.Do(func() (err error) {
		link, err := linkOf(c.Client.IPv4)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		to := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: link.Index, Halen: 6}
		copy(to.Addr[:], gateway)
		return unix.Sendto(fd, packet, 0, to)
	}))
	if err != nil {
		c.t.Fatal(err)
	}
}

// linkOf returns the interface with an address.
func linkOf(a netip.Addr) (*net.Interface, error) {
	links, err := net.Interfaces()
	for i := range links {
		addresses, addressErr := links[i].Addrs()
		err = errors.Join(err, addressErr)
		for _, n := range addresses {
			if p, parseErr := netip.ParsePrefix(n.String()); parseErr == nil && p.Addr() == a {
				return &links[i], nil
			}
		}
	}
	return nil, errors.Join(err, fmt.Errorf("no interface has %s", a))
}

// firstPacket returns an IP packet that begins a connection: a segment with SYN, a datagram, a chunk
// INIT, or an echo request. The kernel that sends it needs no socket of the protocol.
func firstPacket(p model.Protocol, from, to netip.AddrPort) []byte {
	var b []byte
	ports := order.BigEndian.AppendUint16(order.BigEndian.AppendUint16(nil, from.Port()), to.Port())
	at := 0 // of the checksum
	switch p {
	case model.TCP:
		b, at = append(ports, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0), 16 // the flag SYN
	case model.UDP:
		b, at = append(ports, 0, 14, 0, 0, 'h', 'e', 'l', 'l', 'o', '\n'), 6
	case model.SCTP:
		b = append(ports, make([]byte, 8)...) // no tag yet, and the checksum
		// INIT, without flags, of 20 bytes: tag, room for data, streams, first number.
		b = append(b, 1, 0, 0, 20, 0, 0, 0x12, 0x67, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
		order.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	case model.ICMP:
		b, at = append([]byte{8, 0, 0, 0}, ports...), 2 // the identifier and a number
	case model.ICMPv6:
		b, at = append([]byte{128, 0, 0, 0}, ports...), 2
	}
	return inIP(p, from, to, b, at)
}

// signedSegment returns an IP packet with a segment with SYN that has the option of RFC 2385 for signatures. A Linux host drops it
// without an answer unless a key is set for the sender.
func signedSegment(from, to netip.AddrPort) []byte {
	ports := order.BigEndian.AppendUint16(order.BigEndian.AppendUint16(nil, from.Port()), to.Port())
	b := append(ports, 0, 0, 0, 1, 0, 0, 0, 0, 10<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
	return inIP(model.TCP, from, to, append(b, append([]byte{1, 1, 19, 18}, make([]byte, 16)...)...), 16)
}

// inIP returns an IP packet of a protocol. Its checksum is at the given place, if that is not zero.
func inIP(p model.Protocol, from, to netip.AddrPort, b []byte, at int) []byte {
	source, destination := from.Addr().AsSlice(), to.Addr().AsSlice()
	if at > 0 {
		pseudo := slices.Concat(source, destination, []byte{0, 0, 0, byte(len(b)), 0, 0, 0, byte(p)})
		if p == model.ICMP {
			pseudo = nil
		}
		order.BigEndian.PutUint16(b[at:], checksum(append(pseudo, b...)))
	}
	if from.Addr().Is6() {
		return slices.Concat([]byte{6 << 4, 0, 0, 0, 0, byte(len(b)), byte(p), 64}, source, destination, b)
	}
	header := slices.Concat([]byte{4<<4 | 5, 0, 0, byte(20 + len(b)), 0, 1, 0, 0, 64, byte(p), 0, 0}, source, destination)
	order.BigEndian.PutUint16(header[10:], checksum(header))
	return append(header, b...)
}

// checksum returns the internet checksum of RFC 1071 of an even number of bytes.
func checksum(data []byte) uint16 {
	sum := uint32(0)
	for ; len(data) > 0; data = data[2:] {
		sum += uint32(order.BigEndian.Uint16(data))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
