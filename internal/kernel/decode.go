package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// Nfgenmsg is the length of the header of every nf_tables message.
const Nfgenmsg = 4

// attributesOf returns a decoder for the attributes of a message.
func attributesOf(m netlink.Message) (*netlink.AttributeDecoder, error) {
	if len(m.Data) < Nfgenmsg {
		return nil, fmt.Errorf("decode message: %d bytes are too short", len(m.Data))
	}
	return Decoder(m.Data[Nfgenmsg:])
}

func Decoder(b []byte) (*netlink.AttributeDecoder, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	ad.ByteOrder = binary.BigEndian
	return ad, nil
}

// decodeChain returns the chain in a message, and the table it is in.
func decodeChain(m netlink.Message) (c *nft.Chain, table string, err error) {
	ad, err := attributesOf(m)
	if err != nil {
		return nil, "", err
	}
	c = &nft.Chain{}
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_CHAIN_TABLE:
			table = ad.String()
		case unix.NFTA_CHAIN_NAME:
			c.Name = ad.String()
		case unix.NFTA_CHAIN_HOOK:
			ad.Nested(func(hook *netlink.AttributeDecoder) error { return decodeHook(hook, c) })
		case unix.NFTA_CHAIN_TYPE:
			if ad.String() != "nat" {
				c.Hook = ForeignHook
			}
		case unix.NFTA_CHAIN_POLICY:
			if ad.Uint32() != netfilterAccept {
				c.Hook = ForeignHook
			}
		}
	}
	return c, table, ad.Err()
}

// ForeignHook is a hook, type or policy that our chains do not have.
const ForeignHook = nft.Hook(255)

func decodeHook(ad *netlink.AttributeDecoder, c *nft.Chain) error {
	hook := ForeignHook
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_HOOK_HOOKNUM:
			n := ad.Uint32()
			for _, h := range []nft.Hook{nft.Prerouting, nft.Input, nft.Output, nft.Postrouting} {
				if hookNumber(h) == n {
					hook = h
				}
			}
		case unix.NFTA_HOOK_PRIORITY:
			c.Priority = int32(ad.Uint32())
		}
	}
	if c.Hook != ForeignHook {
		c.Hook = hook
	}
	return ad.Err()
}

const (
	setCount     = 20 // NFTA_SET_COUNT, since kernel 6.16
	unknownCount = -1
)

// room returns for how many elements to make room before they come. The count is
// believed only as far as a mistake in it does no harm.
func room(count int) int { return min(max(count, 0), 1<<19) }

// decodeSet returns the declaration of a set and the number of its elements. A
// set that we would not write has no key. An anonymous set is part of a rule
// and gives nil.
func decodeSet(m netlink.Message, f model.Family) (s *nft.Set, count int, err error) {
	ad, err := attributesOf(m)
	if err != nil {
		return nil, 0, err
	}
	s, count = &nft.Set{}, unknownCount
	var flags, keyLength, valueLength uint32
	var expression string // that every element has
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_SET_NAME:
			s.Name = ad.String()
		case unix.NFTA_SET_FLAGS:
			flags = ad.Uint32()
		case unix.NFTA_SET_KEY_TYPE:
			s.Key = datatypes(ad.Uint32(), f)
		case unix.NFTA_SET_KEY_LEN:
			keyLength = ad.Uint32()
		case unix.NFTA_SET_DATA_TYPE:
			s.Data = datatypes(ad.Uint32(), f)
		case unix.NFTA_SET_DATA_LEN:
			valueLength = ad.Uint32()
		case unix.NFTA_SET_DESC:
			ad.Nested(func(desc *netlink.AttributeDecoder) error { return decodeDescription(desc, s) })
		case setExpression:
			ad.Nested(func(e *netlink.AttributeDecoder) error { expression, err = expressionName(e); return err })
		case setCount:
			count = int(ad.Uint32())
		}
	}
	if flags&unix.NFT_SET_ANONYMOUS != 0 {
		return nil, 0, ad.Err()
	}
	s.Interval = flags&unix.NFT_SET_INTERVAL != 0
	s.Dynamic = flags&unix.NFT_SET_EVAL != 0
	s.Counters = expression == counterExpression
	if setFlags(s) != flags || expression != "" && !s.Counters || !isWritable(s, keyLength, valueLength, f) {
		s.Key = nil
	}
	return s, count, ad.Err()
}

// isWritable tells whether a set can be one that we write, by its key and the
// lengths that the kernel has for key and data. Others have keys of a single
// port, for example, which is not padded, or intervals of ports.
func isWritable(s *nft.Set, key, value uint32, f model.Family) bool {
	if !slices.Contains(s.Key, nft.Address) || s.Interval && s.Concat() && !slices.Contains(s.Key, nft.Source) {
		return false
	}
	if key != uint32(widths(s.Key, f)) {
		return false
	}
	switch endpoint := []nft.Datatype{nft.Address, nft.Port}; {
	case len(s.Data) == 0, slices.Equal(s.Data, []nft.Datatype{nft.Verdicts}):
		return true
	default:
		return slices.Equal(s.Data, endpoint) && value == uint32(widths(endpoint, f))
	}
}

func decodeDescription(ad *netlink.AttributeDecoder, s *nft.Set) error {
	for ad.Next() {
		if ad.Type() == unix.NFTA_SET_DESC_SIZE {
			s.Size = ad.Uint32()
		}
	}
	return ad.Err()
}

// actionOf returns NoAction for a verdict that we never use.
func actionOf(code int32) nft.Action {
	for _, a := range []nft.Action{nft.Accept, nft.Drop, nft.Goto, nft.Jump} {
		if int32(verdictCode(a)) == code {
			return a
		}
	}
	return nft.NoAction
}

// joinIntervals turns the starts and ends of an interval set into intervals.
// nft puts an end without a start in front of the first one; it means nothing.
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

// concatIntervals gives the elements of an interval set of concatenations
// their prefix lengths. It returns false if one is not what we write: a prefix
// of the source address, and single values in front of it.
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
