package bytecode

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Destination is what rules name: an address, a port of a protocol, or both.
type Destination struct {
	Address  netip.Addr // the zero Addr: any
	Protocol uint8      // 0: any
	Port     uint16     // 0: any
}

// Named returns the destinations that rules and the keys of their sets name, and the sources that
// rules of the tables except some name, in order. A prefix stands for its first address.
func (r *Ruleset) Named(except ...string) (destinations []Destination, sources []netip.Addr) {
	to, from := make(map[Destination]bool), make(map[netip.Addr]bool)
	for _, t := range r.tables {
		for _, s := range t.sets {
			for _, e := range s.all {
				if d, ok := destinationOf(t.family, e.key); ok {
					to[d] = true
				}
			}
		}
		for _, c := range t.chains {
			for _, rule := range c.rules {
				d, sources := namedBy(rule)
				if d != (Destination{}) {
					to[d] = true
				}
				for _, s := range sources {
					if !slices.Contains(except, t.name) {
						from[s] = true
					}
				}
			}
		}
	}
	destinations = slices.SortedFunc(maps.Keys(to), func(a, b Destination) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return destinations, slices.SortedFunc(maps.Keys(from), netip.Addr.Compare)
}

// destinationOf reads a key that is an address, a protocol with a port, or the three of them.
func destinationOf(family uint8, key []byte) (d Destination, ok bool) {
	length := 4
	if family == unix.NFPROTO_IPV6 || family == unix.NFPROTO_INET && (len(key) == 16 || len(key) == 24) {
		length = 16
	}
	if len(key) == length || len(key) == length+8 {
		d.Address, _ = netip.AddrFromSlice(key[:length])
		key = key[length:]
	}
	if len(key) == 8 && hasPorts(key[0]) && bytes.Equal(key[1:4], make([]byte, 3)) {
		d.Protocol, d.Port = key[0], binary.BigEndian.Uint16(key[4:])
		return d, true
	}
	return d, len(key) == 0
}

// namedBy returns what a rule compares its packets with.
func namedBy(rule []op) (d Destination, sources []netip.Addr) {
	for i := range rule {
		o := &rule[i]
		value := comparedWith(rule, i)
		if o.kind != opLoad || value == nil {
			continue
		}
		a, isAddress := addressOf(value, o)
		switch network := o.source == (field{place: inPacket, number: unix.NFT_PAYLOAD_NETWORK_HEADER}); {
		case network && isAddress && (o.offset == 16 || o.offset == 24):
			d.Address = a
		case network && isAddress && (o.offset == 12 || o.offset == 8):
			sources = append(sources, a)
		case o.source == (field{place: inMeta, number: unix.NFT_META_L4PROTO}):
			d.Protocol = value[0]
		case o.source == (field{place: inPacket, number: unix.NFT_PAYLOAD_TRANSPORT_HEADER}) && o.offset == 2 && len(value) == 2:
			d.Port = binary.BigEndian.Uint16(value)
		}
	}
	if d.Address == (netip.Addr{}) && d.Port == 0 {
		d = Destination{}
	}
	return d, sources
}

// comparedWith returns the constant with which the value that an operation loads is compared, behind
// a mask or not; nil: there is none.
func comparedWith(rule []op, i int) []byte {
	for _, o := range rule[i+1 : min(i+3, len(rule))] {
		if (o.kind == opCompare || o.kind == opRange) && o.from == rule[i].to {
			return o.data
		}
		if o.kind != opBitwise {
			break
		}
	}
	return nil
}

// addressOf completes an address of which a rule loads the first bytes only.
func addressOf(value []byte, o *op) (netip.Addr, bool) {
	length := 4
	if o.offset == 8 && o.length > 1 || o.offset == 24 {
		length = 16
	}
	if len(value) > length {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(append(slices.Clone(value), make([]byte, length-len(value))...))
}
