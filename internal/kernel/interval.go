package kernel

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// setInterval gives a key the interval from its address up to, but not
// including, end; the zero end stands for the end of the address space.
func setInterval(k *nft.Key, end netip.Addr) {
	for bits := range k.Address.BitLen() + 1 {
		p := netip.PrefixFrom(k.Address, bits)
		if p.Masked() == p && lastOf(p).Next() == end {
			k.Bits = uint8(bits)
			return
		}
	}
	k.Bits = nft.Range
	if end.IsValid() {
		k.Source = end.Prev()
	} else {
		k.Source = lastOf(netip.PrefixFrom(k.Address, 0))
	}
}

// intervalEnd returns the first address behind the interval of a key, or the
// zero Addr at the end of the address space.
func intervalEnd(k nft.Key) netip.Addr {
	if k.Bits == nft.Range {
		return k.Source.Next()
	}
	return lastOf(netip.PrefixFrom(k.Address, int(k.Bits))).Next()
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	last := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(last) // 4 or 16 bytes, as they were
	return a
}
