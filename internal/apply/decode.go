package apply

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// nfgenmsg is the length of the header of every nf_tables message.
const nfgenmsg = 4

// attributesOf returns a decoder for the attributes of a message.
func attributesOf(m netlink.Message) (*netlink.AttributeDecoder, error) {
	if len(m.Data) < nfgenmsg {
		return nil, fmt.Errorf("decode message: %d bytes are too short", len(m.Data))
	}
	return decoder(m.Data[nfgenmsg:])
}

func decoder(b []byte) (*netlink.AttributeDecoder, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	ad.ByteOrder = binary.BigEndian
	return ad, nil
}

// decodeChain returns the chain in a message, and the table it is in.
func decodeChain(m netlink.Message) (c *render.Chain, table string, err error) {
	ad, err := attributesOf(m)
	if err != nil {
		return nil, "", err
	}
	c = &render.Chain{}
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
				c.Hook = foreignHook
			}
		case unix.NFTA_CHAIN_POLICY:
			if ad.Uint32() != netfilterAccept {
				c.Hook = foreignHook
			}
		}
	}
	return c, table, ad.Err()
}

// foreignHook is a hook, type or policy that our chains do not have.
const foreignHook = render.Hook(255)

func decodeHook(ad *netlink.AttributeDecoder, c *render.Chain) error {
	hook := foreignHook
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_HOOK_HOOKNUM:
			n := ad.Uint32()
			for _, h := range []render.Hook{render.Prerouting, render.Input, render.Output, render.Postrouting} {
				if hookNumber(h) == n {
					hook = h
				}
			}
		case unix.NFTA_HOOK_PRIORITY:
			c.Priority = int32(ad.Uint32())
		}
	}
	if c.Hook != foreignHook {
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
func decodeSet(m netlink.Message, f model.Family) (s *render.Set, count int, err error) {
	ad, err := attributesOf(m)
	if err != nil {
		return nil, 0, err
	}
	s, count = &render.Set{}, unknownCount
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
func isWritable(s *render.Set, key, value uint32, f model.Family) bool {
	if !slices.Contains(s.Key, render.Address) || s.Interval && s.Concat() && !slices.Contains(s.Key, render.Source) {
		return false
	}
	if key != uint32(widths(s.Key, f)) {
		return false
	}
	switch endpoint := []render.Datatype{render.Address, render.Port}; {
	case len(s.Data) == 0, slices.Equal(s.Data, []render.Datatype{render.Verdicts}):
		return true
	default:
		return slices.Equal(s.Data, endpoint) && value == uint32(widths(endpoint, f))
	}
}

func decodeDescription(ad *netlink.AttributeDecoder, s *render.Set) error {
	for ad.Next() {
		if ad.Type() == unix.NFTA_SET_DESC_SIZE {
			s.Size = ad.Uint32()
		}
	}
	return ad.Err()
}

// actionOf returns NoAction for a verdict that we never use.
func actionOf(code int32) render.Action {
	for _, a := range []render.Action{render.Accept, render.Drop, render.Goto, render.Jump} {
		if int32(verdictCode(a)) == code {
			return a
		}
	}
	return render.NoAction
}

// joinIntervals turns the starts and ends of an interval set into intervals.
// nft puts an end without a start in front of the first one; it means nothing.
func joinIntervals(in []element) []render.Element {
	slices.SortFunc(in, func(a, b element) int {
		if c := a.Key.Compare(b.Key); c != 0 || a.intervalEnd == b.intervalEnd {
			return c
		}
		if a.intervalEnd {
			return -1
		}
		return 1
	})
	var out []render.Element
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
func concatIntervals(in []element) ([]render.Element, bool) {
	out := make([]render.Element, len(in))
	for i, e := range in {
		source := render.Key{Address: e.Key.Source}
		setInterval(&source, e.last.Source.Next())
		same := e.last
		same.Source = e.Key.Source
		if source.Bits == render.Range || same != e.Key {
			return nil, false
		}
		e.Key.Bits = source.Bits
		out[i] = e.Element
	}
	return out, true
}
