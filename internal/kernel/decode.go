package kernel

import (
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// decodeChain returns the chain in a message, and the table it is in.
func decodeChain(m netlink.Message) (c *nft.Chain, table string, err error) {
	c = &nft.Chain{}
	a := netlinkio.ReadMessage(m.Data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_CHAIN_TABLE:
			table = string(a.Text())
		case unix.NFTA_CHAIN_NAME:
			c.Name = string(a.Text())
		case unix.NFTA_CHAIN_HOOK:
			decodeHook(a.Nested(), c)
		case unix.NFTA_CHAIN_TYPE:
			if string(a.Text()) != "nat" {
				c.Hook = ForeignHook
			}
		case unix.NFTA_CHAIN_POLICY:
			if a.Uint32() != netfilterAccept {
				c.Hook = ForeignHook
			}
		}
	}
	return c, table, err
}

// ForeignHook is a hook, type or policy that our chains do not have.
const ForeignHook = nft.Hook(255)

func decodeHook(a netlinkio.Attributes, c *nft.Chain) {
	hook := ForeignHook
	for a.Next() {
		switch a.Type {
		case unix.NFTA_HOOK_HOOKNUM:
			n := a.Uint32()
			for _, h := range []nft.Hook{nft.Prerouting, nft.Input, nft.Output, nft.Postrouting} {
				if hookNumber(h) == n {
					hook = h
				}
			}
		case unix.NFTA_HOOK_PRIORITY:
			c.Priority = int32(a.Uint32())
		}
	}
	if c.Hook != ForeignHook {
		c.Hook = hook
	}
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
	s, count = &nft.Set{}, unknownCount
	var flags, keyLength, valueLength uint32
	var expression string // that every element has
	a := netlinkio.ReadMessage(m.Data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_SET_NAME:
			s.Name = string(a.Text())
		case unix.NFTA_SET_FLAGS:
			flags = a.Uint32()
		case unix.NFTA_SET_KEY_TYPE:
			s.Key = datatypes(a.Uint32(), f)
		case unix.NFTA_SET_KEY_LEN:
			keyLength = a.Uint32()
		case unix.NFTA_SET_DATA_TYPE:
			s.Data = datatypes(a.Uint32(), f)
		case unix.NFTA_SET_DATA_LEN:
			valueLength = a.Uint32()
		case unix.NFTA_SET_DESC:
			for desc := a.Nested(); desc.Next(); {
				if desc.Type == unix.NFTA_SET_DESC_SIZE {
					s.Size = desc.Uint32()
				}
			}
		case setExpression:
			expression = expressionName(a.Nested())
		case setCount:
			count = int(a.Uint32())
		}
	}
	if flags&unix.NFT_SET_ANONYMOUS != 0 {
		return nil, 0, err
	}
	s.Interval = flags&unix.NFT_SET_INTERVAL != 0
	s.Dynamic = flags&unix.NFT_SET_EVAL != 0
	s.Counters = expression == counterExpression
	if setFlags(s) != flags || expression != "" && !s.Counters || !isWritable(s, keyLength, valueLength, f) {
		s.Key = nil
	}
	return s, count, err
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
