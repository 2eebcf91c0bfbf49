package trace

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// attribute returns a padded netlink attribute.
func attribute(typ uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func text(s string) []byte { return append([]byte(s), 0) }

func bytesOf(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// message returns a message of the kernel about a packet.
func message(family byte, attributes ...[]byte) netlink.Message {
	m := netlink.Message{Header: netlink.Header{Type: traceMessage}, Data: []byte{family, 0, 0, 0}}
	for _, a := range attributes {
		m.Data = append(m.Data, a...)
	}
	return m
}

// TestDecode decodes each kind of message.
func TestDecode(t *testing.T) {
	ipv4 := attribute(unix.NFTA_TRACE_NETWORK_HEADER, bytesOf(t, "4500003c 1c464000 4006b1e6 c0000202 0a60000a"))
	ipv6 := attribute(unix.NFTA_TRACE_NETWORK_HEADER, bytesOf(t, "60000000 00281140 20010db8000000000000000000000002 fd000010009600000000000000000001"))
	syn := attribute(unix.NFTA_TRACE_TRANSPORT_HEADER, bytesOf(t, "4e210050 01020304 00000000 a002fd88 00000000"))
	udp := attribute(unix.NFTA_TRACE_TRANSPORT_HEADER, bytesOf(t, "4e210035 000a0000"))
	at := func(table, chain string) []byte {
		return append(attribute(unix.NFTA_TRACE_TABLE, text(table)), attribute(unix.NFTA_TRACE_CHAIN, text(chain))...)
	}
	kind := func(k Kind) []byte { return attribute(unix.NFTA_TRACE_TYPE, number(uint32(k))) }
	verdict := func(v Verdict, chain string) []byte {
		nested := attribute(unix.NFTA_VERDICT_CODE, number(uint32(v)))
		if chain != "" {
			nested = append(nested, attribute(unix.NFTA_VERDICT_CHAIN, text(chain))...)
		}
		return attribute(unix.NFTA_TRACE_VERDICT|unix.NLA_F_NESTED, nested)
	}
	protocol := func(p uint32) []byte { return attribute(unix.NFTA_TRACE_NFPROTO, number(p)) }
	for _, c := range []struct {
		name    string
		message netlink.Message
		want    Event
	}{
		{"a jump, with the packet", message(unix.NFPROTO_IPV4, attribute(unix.NFTA_TRACE_ID, number(7)), at("filter", "FORWARD"), kind(Rule),
			attribute(unix.NFTA_TRACE_RULE_HANDLE, []byte{0, 0, 0, 0, 0, 0, 1, 2}), verdict(Jump, "DOCKER-USER"), attribute(unix.NFTA_TRACE_MARK, number(0x4000)),
			protocol(unix.NFPROTO_IPV4), attribute(unix.NFTA_TRACE_IIF, number(2)), attribute(unix.NFTA_TRACE_OIF, number(3)), ipv4, syn),
			Event{ID: 7, Place: Place{unix.NFPROTO_IPV4, "filter", "FORWARD"}, Handle: 258, Kind: Rule, Verdict: Jump, To: "DOCKER-USER", Mark: 0x4000, Packet: &Packet{
				Source: netip.MustParseAddrPort("192.0.2.2:20001"), Destination: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: model.TCP, Flags: flagSYN, Sequence: 0x01020304, In: 2, Out: 3}}},
		{"a policy", message(unix.NFPROTO_INET, at("fw", "c"), kind(Policy), attribute(unix.NFTA_TRACE_POLICY, number(0))),
			Event{Place: Place{unix.NFPROTO_INET, "fw", "c"}, Kind: Policy, Verdict: Drop}},
		{"a queue with a number", message(unix.NFPROTO_INET, at("fw", "c"), kind(Rule), attribute(unix.NFTA_TRACE_RULE_HANDLE, []byte{0, 0, 0, 0, 0, 0, 0, 9}), verdict(0x00050003, "")),
			Event{Place: Place{unix.NFPROTO_INET, "fw", "c"}, Kind: Rule, Handle: 9, Verdict: Queue}},
		{"the end of a chain", message(unix.NFPROTO_INET, at("fw", "c"), kind(Rule), attribute(unix.NFTA_TRACE_RULE_HANDLE, make([]byte, 8)), verdict(Continue, "")),
			Event{Place: Place{unix.NFPROTO_INET, "fw", "c"}, Kind: Return, Verdict: Continue}},
		{"no verdict is no drop", message(unix.NFPROTO_INET, at("fw", "c"), kind(Return)),
			Event{Place: Place{unix.NFPROTO_INET, "fw", "c"}, Kind: Return, Verdict: Continue}},
		{"UDP over IPv6", message(unix.NFPROTO_IPV6, at("a", "b"), kind(Policy), attribute(unix.NFTA_TRACE_POLICY, number(1)), protocol(unix.NFPROTO_IPV6), ipv6, udp),
			Event{Place: Place{unix.NFPROTO_IPV6, "a", "b"}, Kind: Policy, Verdict: Accept, Packet: &Packet{
				Source: netip.MustParseAddrPort("[2001:db8::2]:20001"), Destination: netip.MustParseAddrPort("[fd00:10:96::1]:53"), Protocol: model.UDP}}},
		{"a short header", message(unix.NFPROTO_IPV4, at("a", "b"), protocol(unix.NFPROTO_IPV4), attribute(unix.NFTA_TRACE_NETWORK_HEADER, []byte{0x45})),
			Event{Place: Place{unix.NFPROTO_IPV4, "a", "b"}, Verdict: Continue}},
		{"no ports", message(unix.NFPROTO_IPV4, at("a", "b"), protocol(unix.NFPROTO_IPV4), ipv4),
			Event{Place: Place{unix.NFPROTO_IPV4, "a", "b"}, Verdict: Continue, Packet: &Packet{
				Source: netip.MustParseAddrPort("192.0.2.2:0"), Destination: netip.MustParseAddrPort("10.96.0.10:0"), Protocol: model.TCP}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok, err := Decode(c.message)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecodeRefuses: other messages are none about packets, and malformed ones are errors.
func TestDecodeRefuses(t *testing.T) {
	if _, ok, err := Decode(netlink.Message{Header: netlink.Header{Type: traceMessage + 1}, Data: make([]byte, 4)}); ok || err != nil {
		t.Errorf("another message: %t, %v", ok, err)
	}
	for name, m := range map[string]netlink.Message{
		"no header":      {Header: netlink.Header{Type: traceMessage}, Data: []byte{2, 0}},
		"a short number": message(unix.NFPROTO_IPV4, attribute(unix.NFTA_TRACE_ID, []byte{1})),
		"a short handle": message(unix.NFPROTO_IPV4, attribute(unix.NFTA_TRACE_RULE_HANDLE, []byte{1, 2, 3, 4})),
		"a long one":     message(unix.NFPROTO_IPV4, []byte{99, 0, 1, 0}),
	} {
		if _, ok, err := Decode(m); ok || err == nil {
			t.Errorf("%s: %t, %v, want an error", name, ok, err)
		}
	}
}

// FuzzDecode: no message makes the decoder fail otherwise than with an error, and a packet has a plain text.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 6, 0, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok, err := Decode(netlink.Message{Header: netlink.Header{Type: traceMessage}, Data: b})
		if ok && err != nil {
			t.Errorf("%v is an event, with the error %v", e, err)
		}
		if e.Packet != nil {
			hostile.CheckText(t, e.Packet.String()+e.Packet.icmpText())
		}
	})
}
