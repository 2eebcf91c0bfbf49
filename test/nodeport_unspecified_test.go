package test

import (
	order "encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Source ports of the datagrams in TestNodePortOfNoAddress.
const (
	fromUnspecified = 40001 // to the unspecified address
	fromServed      = 40002 // to an address that serves NodePorts
)

// watchArrivals counts datagrams by their source port: when they arrive, and behind DNAT.
var watchArrivals = fmt.Sprintf(`table inet watch {
	counter arrived {}
	counter unspecified {}
	counter served {}
	chain early { type filter hook prerouting priority -350; udp sport %[1]d counter name arrived; }
	chain late {
		type filter hook prerouting priority 0
		udp sport %[1]d ct status dnat counter name unspecified
		udp sport %[2]d ct status dnat counter name served
	}
}
`, fromUnspecified, fromServed)

// 6.6: NodePorts are served on the addresses in the set only. A machine in a network of the
// node can send a packet to 0.0.0.0 or :: in a frame to the node.
func TestNodePortOfNoAddress(t *testing.T) {
	for _, affinity := range []int{0, long} {
		for _, family := range model.Families {
			t.Run(fmt.Sprintf("%s, affinity %d s", family, affinity), func(t *testing.T) {
				c := newCluster(t, 1)
				c.addSecondAddress()
				served := secondAddress[family]
				c.flags = slices.Concat(clusterCIDR, []string{"--nodeport-addresses", secondAddress[model.IPv4].String() + "/32," + secondAddress[model.IPv6].String() + "/128"})
				web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: affinity}
				c.apply(web)
				c.nftLoad(watchArrivals)
				from := c.Client.Address(family)
				c.sendFrame(datagram(netip.AddrPortFrom(from, fromUnspecified), netip.AddrPortFrom(model.Wildcard(family), web.NodePort())))
				c.sendFrame(datagram(netip.AddrPortFrom(from, fromServed), netip.AddrPortFrom(served, web.NodePort())))
				eventually(t, func() error {
					if arrived, served := c.counter("arrived"), c.counter("served"); arrived != 1 || served != 1 {
						return fmt.Errorf("%d datagrams to no address arrived, and %d are served, want one of each", arrived, served)
					}
					return nil
				})
				if n := c.counter("unspecified"); n != 0 {
					t.Errorf("a packet to %s reaches the NodePort, which only %s serves", model.Wildcard(family), served)
				}
			})
		}
	}
}

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

// datagram returns an IP packet with a UDP datagram.
func datagram(from, to netip.AddrPort) []byte {
	udp := []byte("????????hello\n")
	order.BigEndian.PutUint16(udp[0:], from.Port())
	order.BigEndian.PutUint16(udp[2:], to.Port())
	order.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	order.BigEndian.PutUint16(udp[6:], 0)
	source, destination := from.Addr().AsSlice(), to.Addr().AsSlice()
	pseudo := slices.Concat(source, destination, []byte{0, 0, 0, byte(len(udp)), 0, 0, 0, unix.IPPROTO_UDP}, udp)
	order.BigEndian.PutUint16(udp[6:], checksum(pseudo))
	if from.Addr().Is6() {
		return slices.Concat([]byte{6 << 4, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64}, source, destination, udp)
	}
	header := slices.Concat([]byte{4<<4 | 5, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, source, destination)
	order.BigEndian.PutUint16(header[10:], checksum(header))
	return append(header, udp...)
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
