package nflog

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// attribute returns an attribute with its padding.
func attribute(kind uint16, parts ...[]byte) []byte {
	var data []byte
	for _, p := range parts {
		data = append(data, p...)
	}
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	return append(b, make([]byte, -len(b)&3)...)
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// ipv4 returns a packet, with a number of bytes of options.
func ipv4(from, to string, protocol byte, fragment uint16, options int, rest ...byte) []byte {
	b := make([]byte, ipv4Length+options)
	b[0], b[9] = 4<<4|byte(len(b)/4), protocol
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], netip.MustParseAddr(from).AsSlice())
	copy(b[16:], netip.MustParseAddr(to).AsSlice())
	return append(b, rest...)
}

func ipv6(from, to string, next byte, rest ...byte) []byte {
	b := make([]byte, ipv6Length)
	b[0], b[6] = 6<<4, next
	copy(b[8:], netip.MustParseAddr(from).AsSlice())
	copy(b[24:], netip.MustParseAddr(to).AsSlice())
	return append(b, rest...)
}

// tuple returns a direction of a connection (struct nf_conntrack_tuple).
func tuple(kind uint16, from, to string) []byte {
	f, t := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	return attribute(kind|unix.NLA_F_NESTED,
		attribute(1|unix.NLA_F_NESTED, attribute(1, f.Addr().AsSlice()), attribute(2, t.Addr().AsSlice())),
		attribute(2|unix.NLA_F_NESTED, attribute(1, []byte{unix.IPPROTO_TCP}), attribute(2, port(f.Port())), attribute(3, port(t.Port()))))
}

// TestDecode reads packets and connections.
func TestDecode(t *testing.T) {
	tcp := []byte{0x10, 0x00, 0, 80, 0, 0, 0, 1} // from port 4096
	syn := ipv4("10.1.2.3", "10.96.0.10", unix.IPPROTO_TCP, 0, 0, tcp...)
	const v4, v6 = unix.AF_INET, unix.AF_INET6
	for _, c := range []struct {
		name    string
		family  byte
		packet  []byte
		other   []byte // attributes
		want    string // client, dialled, endpoint
		refused bool
	}{
		{"TCP", v4, syn, nil, "10.1.2.3:4096 10.96.0.10:80 -", false},
		{"options", v4, ipv4("10.1.2.3", "10.96.0.10", unix.IPPROTO_UDP, 0, 40, tcp...), nil, "10.1.2.3:4096 10.96.0.10:80 -", false},
		{"later fragment", v4, ipv4("10.1.2.3", "10.96.0.10", unix.IPPROTO_UDP, 7, 0, tcp...), nil, "10.1.2.3:0 10.96.0.10:0 -", false},
		{"first fragment", v4, ipv4("10.1.2.3", "10.96.0.10", unix.IPPROTO_UDP, 0x2000, 0, tcp...), nil, "10.1.2.3:4096 10.96.0.10:80 -", false},
		{"ping", v4, ipv4("10.1.2.3", "10.96.0.10", unix.IPPROTO_ICMP, 0, 0, tcp...), nil, "10.1.2.3:0 10.96.0.10:0 -", false},
		{"cut off", v4, syn[:22], nil, "10.1.2.3:0 10.96.0.10:0 -", false},
		{"no header", v4, syn[:19], nil, "", true},
		{"wrong length", v4, append([]byte{0x4f}, syn[1:]...), nil, "10.1.2.3:0 10.96.0.10:0 -", false},
		{"other family", v6, syn, nil, "", true},
		{"not IP", unix.AF_UNSPEC, syn, nil, "", true},
		{"IPv6", v6, ipv6("fd00::1", "fd00::10", unix.IPPROTO_TCP, tcp...), nil, "[fd00::1]:4096 [fd00::10]:80 -", false},
		{"extensions", v6, ipv6("fd00::1", "fd00::10", hopByHop, join([]byte{destination, 1}, make([]byte, 14), []byte{unix.IPPROTO_SCTP, 0}, make([]byte, 6), tcp)...), nil, "[fd00::1]:4096 [fd00::10]:80 -", false},
		{"later IPv6 fragment", v6, ipv6("fd00::1", "fd00::10", fragment, join([]byte{unix.IPPROTO_UDP, 0, 1, 0, 0, 0, 0, 0}, tcp)...), nil, "[fd00::1]:0 [fd00::10]:0 -", false},
		{"endless extensions", v6, ipv6("fd00::1", "fd00::10", routing, 0, 255, 0, 0, 0, 0, 0, 0), nil, "[fd00::1]:0 [fd00::10]:0 -", false},
		{"connection", v4, syn, attribute(nfulaCT|unix.NLA_F_NESTED, tuple(1, "10.1.2.3:4096", "10.96.0.10:80"), tuple(2, "10.128.0.2:8080", "10.1.2.3:4096")), "10.1.2.3:4096 10.96.0.10:80 10.128.0.2:8080", false},
		{"answer", v4, ipv4("10.96.0.10", "10.1.2.3", unix.IPPROTO_TCP, 0, 0, 0, 80, 16, 0), attribute(nfulaCT|unix.NLA_F_NESTED, tuple(1, "10.1.2.3:4096", "10.96.0.10:80"), tuple(2, "10.128.0.2:8080", "10.1.2.3:4096")), "10.1.2.3:4096 10.96.0.10:80 10.128.0.2:8080", false},
		{"masqueraded", v4, ipv4("192.0.2.1", "10.128.0.2", unix.IPPROTO_TCP, 0, 0, tcp...), attribute(nfulaCT|unix.NLA_F_NESTED, tuple(1, "10.1.2.3:4096", "10.96.0.10:80"), tuple(2, "10.128.0.2:8080", "192.0.2.1:4096")), "10.1.2.3:0 10.96.0.10:80 10.128.0.2:8080", false},
		{"not translated", v4, syn, attribute(nfulaCT|unix.NLA_F_NESTED, tuple(1, "10.1.2.3:4096", "10.96.0.10:80"), tuple(2, "10.96.0.10:80", "10.1.2.3:4096")), "10.1.2.3:4096 10.96.0.10:80 -", false},
		{"broken connection", v4, syn, attribute(nfulaCT|unix.NLA_F_NESTED, []byte{9, 9, 9, 9}), "10.1.2.3:4096 10.96.0.10:80 -", false},
		{"broken attribute", v4, syn, []byte{200, 0, 1, 0}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e Event
			message := join(attribute(nfulaPrefix, []byte("denied\x00")), attribute(nfulaSequence, []byte{0, 0, 1, 2}), attribute(nfulaPayload, c.packet), c.other)
			sequence, ok := e.decode(c.family, message)
			if ok == c.refused || sequence != 258 {
				t.Fatalf("decoded %t, sequence %d", ok, sequence)
			}
			endpoint := "-"
			if at, ok := e.Endpoint(); ok {
				endpoint = at.String()
			}
			if got := fmt.Sprint(e.Client(), " ", e.Dialled(), " ", endpoint); ok && (got != c.want || string(e.Prefix) != "denied") {
				t.Errorf("%s, prefix %q; want %s", got, e.Prefix, c.want)
			}
		})
	}
}

// TestPorts reads the kernel's table of groups.
func TestPorts(t *testing.T) {
	const table = "    5   4711     0 2 65535    100  1\n28272 4294963199     0 2    96     10  1\n\nx 1\n"
	if got := portsOf(table); fmt.Sprint(got) != "map[5:4711 28272:4294963199]" {
		t.Errorf("%v", got)
	}
}

// FuzzPorts: any table is read in proportion to its length, and no line counts that does not begin with two numbers.
func FuzzPorts(f *testing.F) {
	for _, table := range []string{"    5   4711     0 2 65535    100  1\n28272 4294963199     0 2    96     10  1\n\nx 1\n", "65536 1\n-1 2\n1 -2\n0x5 7\n5 4294967296\n", "5\n7\n"} {
		f.Add(table)
	}
	f.Fuzz(func(t *testing.T, table string) {
		var ports map[uint16]uint32
		hostile.CheckMemory(t, len(table), 1024, func() { ports = portsOf(table) })
		for group, port := range ports {
			if !strings.Contains(table, fmt.Sprint(group)) || !strings.Contains(table, fmt.Sprint(port)) {
				t.Errorf("group %d of port %d is not in %q", group, port, table)
			}
		}
	})
}

// FuzzDeliver: no message makes the reader fail, and each gives one event at most. The kernel copies parts of
// packets that strangers send.
func FuzzDeliver(f *testing.F) {
	packet := ipv6("fd00::1", "fd00::10", hopByHop, join([]byte{unix.IPPROTO_TCP, 0}, make([]byte, 6), []byte{1, 2, 3, 4})...)
	message := join([]byte{unix.AF_INET6, 0, 0, 0}, attribute(nfulaPrefix, []byte("rate")), attribute(nfulaPayload, packet))
	header := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(message)))
	header = binary.NativeEndian.AppendUint16(header, packetMessage)
	f.Add(join(header, make([]byte, 10), message))
	f.Add([]byte(strings.Repeat("\x10\x00\x00\x00", 9)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Reader
		events := 0
		r.deliverPackets(b, func(e *Event) {
			_, _ = e.Endpoint()
			if events++; events*unix.SizeofNlMsghdr > len(b) {
				t.Fatalf("%d events in %d bytes", events, len(b))
			}
			if !e.Client().IsValid() || !e.Dialled().IsValid() {
				t.Errorf("an event without a client or destination: %+v", e)
			}
		})
	})
}
