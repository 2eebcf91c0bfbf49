package conntrack

import (
	"cmp"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/vishvananda/netlink/nl"
)

// message returns what a dump says of a flow.
func message(t testing.TB, f Flow, client netip.AddrPort) []byte {
	e := netlink.NewAttributeEncoder()
	e.Nested(nl.CTA_TUPLE_ORIG, tupleOf(f.Protocol, client, f.Dialled))
	e.Nested(nl.CTA_TUPLE_REPLY, tupleOf(f.Protocol, f.Answers, f.Returns))
	e.Bytes(nl.CTA_ID, encodeUint32(f.ID))
	if f.Answered {
		e.Bytes(nl.CTA_STATUS, encodeUint32(seenReply))
	}
	e.Nested(nl.CTA_PROTOINFO, f.encodeState)
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(messageHeader(model.FamilyOf(f.Dialled.Addr())), b...)
}

// encodeState writes what decodeState reads. The end of a connection looks the same for TCP and SCTP.
func (f *Flow) encodeState(e *netlink.AttributeEncoder) error {
	e.Nested(nl.CTA_PROTOINFO_TCP, func(e *netlink.AttributeEncoder) error {
		if f.Opening {
			e.Uint8(nl.CTA_PROTOINFO_TCP_STATE, nl.TCP_CONNTRACK_SYN_SENT)
		}
		switch f.ClosedBy {
		case ClientSide:
			e.Bytes(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, []byte{tcpClosedFirst, 0})
		case EndpointSide:
			e.Bytes(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, []byte{tcpClosedFirst, 0})
		}
		return nil
	})
	if f.Closing {
		e.Nested(nl.CTA_PROTOINFO_SCTP, func(e *netlink.AttributeEncoder) error {
			e.Uint8(nl.CTA_PROTOINFO_TCP_STATE, sctpClosed)
			return nil
		})
	}
	return nil
}

func tupleOf(p model.Protocol, from, to netip.AddrPort) func(*netlink.AttributeEncoder) error {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if from.Addr().Is6() {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	return func(e *netlink.AttributeEncoder) error {
		e.Nested(nl.CTA_TUPLE_IP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(source, from.Addr().AsSlice())
			e.Bytes(destination, to.Addr().AsSlice())
			return nil
		})
		e.Nested(nl.CTA_TUPLE_PROTO, func(e *netlink.AttributeEncoder) error {
			e.Uint8(nl.CTA_PROTO_NUM, uint8(p))
			if p.IsEcho() {
				id, kind, request := uint16(ctaProtoICMPID), uint16(ctaProtoICMPType), uint8(8)
				if p == model.ICMPv6 {
					id, kind, request = ctaProtoICMPv6ID, ctaProtoICMPv6Type, 128
				}
				port := cmp.Or(from.Port(), to.Port())
				e.Bytes(id, []byte{byte(port >> 8), byte(port)})
				e.Uint8(kind, request)
				return nil
			}
			e.Bytes(nl.CTA_PROTO_SRC_PORT, []byte{byte(from.Port() >> 8), byte(from.Port())})
			e.Bytes(nl.CTA_PROTO_DST_PORT, []byte{byte(to.Port() >> 8), byte(to.Port())})
			return nil
		})
		return nil
	}
}

// FuzzEntries: any message about an entry has one group, of an address or a /64 of IPv6; and what IPVS
// translates is made again with the addresses that it has.
func FuzzEntries(f *testing.F) {
	for _, flow := range []Flow{
		{model.UDP, addr("192.0.2.7"), addrPort("10.96.0.1:53"), addrPort("10.128.0.1:5353"), addrPort("192.0.2.7:40000"), 7, true, false, Neither, false},
		{model.TCP, addr("2001:db8::7"), addrPort("[fd00:96::1]:80"), addrPort("[fd00:128::1]:8080"), addrPort("[2001:db8::7]:40000"), 1, false, true, ClientSide, false},
		{model.SCTP, addr("192.0.2.7"), addrPort("10.96.0.1:80"), addrPort("10.96.0.2:80"), addrPort("10.0.0.7:40000"), 2, false, false, EndpointSide, true},
	} {
		whole := message(f, flow, netip.AddrPortFrom(flow.Client, 40000))
		f.Add(whole)
		f.Add(append(whole, encodeNested(nl.CTA_COUNTERS_ORIG, encodeAttribute(nl.CTA_COUNTERS_BYTES, make([]byte, 8)))...))
		f.Add(append(whole, encodeNested(nl.CTA_PROTOINFO, encodeNested(nl.CTA_PROTOINFO_TCP, encodeAttribute(nl.CTA_PROTOINFO_TCP_STATE, []byte{200})))...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		switch g, dialled := decodeGroup(data); {
		case g.State == "":
			t.Errorf("no state: %+v", g)
		case g.Client.IsValid() && g.Client.Bits() != map[bool]int{true: 32, false: 64}[g.Client.Addr().Is4()]:
			t.Errorf("the client of %+v is no address and no /64, of %+v", g, dialled)
		}
		if e := decodeEntry(data); e == nil || e.Received != 0 && len(data) < 8 {
			t.Errorf("entry %+v", e)
		}
		a, ok := decodeAdoption(data)
		if !ok {
			return
		}
		var err error
		made := netlinkio.Read(a.encode(), &err)
		for made.Next() {
			if made.Type == nl.CTA_TUPLE_ORIG {
				if original := decodeTuple(made.Nested()); original.sourceAddress() != a.client || original.destinationAddress() != a.Dialled || original.protocol != a.Protocol {
					t.Errorf("%+v is made as %+v", a, original)
				}
			}
		}
		if err != nil || a.client.Addr() != a.Client {
			t.Errorf("%+v is made as a message with %v", a, err)
		}
	})
}

// FuzzDecode: any message is skipped or yields a complete flow whose deletion
// names the whole reply tuple: without it the kernel would delete other entries.
func FuzzDecode(f *testing.F) {
	for _, flow := range []Flow{
		{model.UDP, addr("192.0.2.7"), addrPort("10.96.0.1:53"), addrPort("10.128.0.1:5353"), addrPort("192.0.2.7:40000"), 0xfedcba98, false, false, Neither, false},
		{model.TCP, addr("2001:db8::8"), addrPort("[fd00:96::1]:80"), addrPort("[fd00:128::1]:8080"), addrPort("[2001:db8::7]:40000"), 1, false, false, Neither, false},
		{model.SCTP, addr("192.0.2.7"), addrPort("10.96.0.1:80"), addrPort("10.96.0.1:80"), addrPort("192.0.2.7:40000"), 0, false, false, Neither, false},
	} {
		whole := message(f, flow, netip.AddrPortFrom(flow.Client, 40000))
		if got, ok := decode(whole); !ok || got != flow {
			f.Fatalf("decoded is %+v, want %+v", got, flow)
		}
		f.Add(whole)
		f.Add(whole[:len(whole)/2])
	}
	for _, flow := range []Flow{
		{model.ICMP, addr("192.0.2.7"), addrPort("10.96.0.1:0"), addrPort("192.168.7.1:0"), addrPort("192.0.2.7:77"), 3, false, false, Neither, false},
		{model.ICMPv6, addr("2001:db8::7"), addrPort("[fd00:96::1]:0"), addrPort("[fd00:7::1]:0"), addrPort("[2001:db8::7]:0"), 4, false, false, Neither, false},
	} {
		echo := message(f, flow, netip.AddrPortFrom(flow.Client, 77))
		if got, ok := decode(echo); !ok || got != flow {
			f.Fatalf("decoded is %+v, want %+v", got, flow)
		}
		f.Add(echo)
	}
	// Addresses of two families are malformed.
	f.Add(message(f, Flow{model.UDP, addr("192.0.2.7"), addrPort("10.96.0.1:53"), addrPort("[fd00::1]:53"), addrPort("[fd00::7]:1"), 2, false, false, Neither, false}, addrPort("192.0.2.7:1")))
	f.Add(message(f, Flow{model.UDP, addr("192.0.2.7"), addrPort("10.96.0.1:53"), addrPort("10.128.0.1:53"), addrPort("[fd00::7]:1"), 2, false, false, Neither, false}, addrPort("192.0.2.7:1")))
	f.Fuzz(func(t *testing.T, data []byte) {
		flow, ok := decode(data)
		if !ok {
			return
		}
		for _, a := range []netip.AddrPort{flow.Dialled, flow.Answers, flow.Returns, netip.AddrPortFrom(flow.Client, 1)} {
			if !a.IsValid() || a.Port() == 0 && !flow.Protocol.IsEcho() || a.Addr().Is4() != flow.Dialled.Addr().Is4() {
				t.Errorf("incomplete, or of two families: %+v", flow)
			}
		}
		if got, ok := decode(message(t, flow, netip.AddrPortFrom(flow.Client, 40000))); !ok || got != flow {
			t.Errorf("%+v written and read again is %+v", flow, got)
		}
		var named tuple
		var err error
		a := netlinkio.Read(flow.encode(), &err)
		for a.Next() {
			if a.Type == nl.CTA_TUPLE_REPLY {
				named = decodeTuple(a.Nested())
			}
		}
		if named.sourceAddress() != flow.Answers || named.destinationAddress() != flow.Returns || named.protocol != flow.Protocol {
			t.Errorf("%+v is named by the tuple %+v", flow, named)
		}
	})
}
