package apply

import "net/netip"

// noPrefix is the length of an interval that is not a prefix.
const noPrefix = 255

// prefixLength returns the length of the prefix that goes from start up to,
// but not including, end.
func prefixLength(start, end netip.Addr) uint8 {
	for bits := range start.BitLen() + 1 {
		p := netip.PrefixFrom(start, bits)
		if p.Masked().Addr() == start && after(p) == end {
			return uint8(bits)
		}
	}
	return noPrefix
}

// openPrefixLength returns the length of the prefix that goes from start to
// the end of the address space.
func openPrefixLength(start netip.Addr) uint8 {
	return prefixLength(start, netip.Addr{})
}
