package kernel

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// setInterval gives a key the interval from its address up to, but not including,
// end. The zero end is the end of the address space.
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
	a, _ := netip.AddrFromSlice(last) // 4 or 16 bytes
	return a
}

// joinIntervals turns the starts and ends of an interval set into intervals. nft
// puts an end without a start before the first one; it has no meaning.
func joinIntervals(in []element) []nft.Element {
	slices.SortFunc(in, func(a, b element) int {
		if c := a.Key.Compare(b.Key); c != 0 || a.intervalEnd == b.intervalEnd {
			return c
		}
		if a.intervalEnd {
			return -1
		}
		return 1
	})
	var out []nft.Element
	for i, e := range in {
		if e.intervalEnd {
			continue
		}
		var end netip.Addr
		if i+1 < len(in) {
			end = in[i+1].Key.Address
		}
		setInterval(&e.Key, end)
		out = append(out, e.Element)
	}
	return out
}

// concatIntervals gives the elements of an interval set of concatenations their
// prefix lengths. It reports whether we could have written all of them: single
// values, and then a prefix of the source address.
func concatIntervals(in []element) ([]nft.Element, bool) {
	out := make([]nft.Element, len(in))
	for i, e := range in {
		source := nft.Key{Address: e.Key.Source}
		setInterval(&source, e.last.Source.Next())
		same := e.last
		same.Source = e.Key.Source
		if source.Bits == nft.Range || same != e.Key {
			return nil, false
		}
		e.Key.Bits = source.Bits
		out[i] = e.Element
	}
	return out, true
}
