package relay

import (
	"encoding/binary"
	"net/netip"
)

// What a header of the PROXY protocol consists of (proxy-protocol.txt of haproxy.org, 2.2).
const (
	signature   = "\r\n\r\n\x00\r\nQUIT\n"
	versionTwo  = 0x20
	commandBoth = 0x01 // PROXY: on behalf of another node
	overIPv4    = 0x11 // TCP
	overIPv6    = 0x21
)

// header returns the header for the connection of a client to the address that it dialled, which
// have one family.
func header(client, dialled netip.AddrPort) []byte {
	from, to, family := client.Addr().AsSlice(), dialled.Addr().AsSlice(), byte(overIPv4)
	if dialled.Addr().Is6() {
		family = overIPv6
	}
	out := append([]byte(signature), versionTwo|commandBoth, family)
	out = binary.BigEndian.AppendUint16(out, uint16(len(from)+len(to)+4))
	out = append(append(out, from...), to...)
	out = binary.BigEndian.AppendUint16(out, client.Port())
	return binary.BigEndian.AppendUint16(out, dialled.Port())
}
