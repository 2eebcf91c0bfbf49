package codec

import (
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// DecodeChain returns the chain in a message, and its table.
func DecodeChain(m netlink.Message) (c *nft.Chain, table string, err error) {
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
			switch string(a.Text()) {
			case "nat":
			case "filter":
				c.Filter = true
			default:
				c.Hook = nft.ForeignHook
			}
		case unix.NFTA_CHAIN_POLICY:
			if a.Uint32() != netfilterAccept {
				c.Hook = nft.ForeignHook
			}
		}
	}
	return c, table, err
}

func decodeHook(a netlinkio.Attributes, c *nft.Chain) {
	hook := nft.ForeignHook
	for a.Next() {
		switch a.Type {
		case unix.NFTA_HOOK_HOOKNUM:
			if i := slices.Index(hookNumbers[nft.Prerouting:], a.Uint32()); i >= 0 {
				hook = nft.Prerouting + nft.Hook(i)
			}
		case unix.NFTA_HOOK_PRIORITY:
			c.Priority = int32(a.Uint32())
		}
	}
	if c.Hook != nft.ForeignHook {
		c.Hook = hook
	}
}

const (
	SetCount     = 20 // NFTA_SET_COUNT, since kernel 6.16
	UnknownCount = -1

	// setExpression is NFTA_SET_EXPR: every element of the set gets a copy of the
	// expression, which is evaluated when a packet finds the element.
	setExpression     = 17
	counterExpression = "counter"
)

// Room returns how many elements to allocate in advance. A wrong count must not
// exhaust the memory.
func Room(count int) int { return min(max(count, 0), 1<<19) }

// DecodeSet returns the declaration of a set and the number of its elements. A set
// that we would not write has no key. An anonymous set, which is part of a rule,
// is nil.
func DecodeSet(m netlink.Message, f model.Family) (s *nft.Set, count int, err error) {
	s, count = &nft.Set{}, UnknownCount
	var flags, keyLength, valueLength uint32
	var expression string // of every element
	a := netlinkio.ReadMessage(m.Data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_SET_NAME:
			s.Name = string(a.Text())
		case unix.NFTA_SET_FLAGS:
			flags = a.Uint32()
		case unix.NFTA_SET_KEY_TYPE:
			s.Key = datatypesOf(a.Uint32(), f)
		case unix.NFTA_SET_KEY_LEN:
			keyLength = a.Uint32()
		case unix.NFTA_SET_DATA_TYPE:
			s.Data = datatypesOf(a.Uint32(), f)
		case unix.NFTA_SET_DATA_LEN:
			valueLength = a.Uint32()
		case unix.NFTA_SET_DESC:
			for desc := a.Nested(); desc.Next(); {
				if desc.Type == unix.NFTA_SET_DESC_SIZE {
					s.Size = desc.Uint32()
				}
			}
		case setExpression:
			expression = ExpressionName(a.Nested())
		case SetCount:
			count = int(a.Uint32())
		}
	}
	if flags&unix.NFT_SET_ANONYMOUS != 0 {
		return nil, 0, err
	}
	s.Interval = flags&unix.NFT_SET_INTERVAL != 0
	s.Dynamic = flags&unix.NFT_SET_EVAL != 0
	s.Timeless = s.Dynamic && flags&unix.NFT_SET_TIMEOUT == 0
	s.Counters = expression == counterExpression
	s.Limits = nft.LimitType(max(0, slices.Index(limitExpressions, expression)))
	if i := slices.Index(s.Key, nft.Port); s.Interval && i >= 0 && nft.OfRanges(s.Name) {
		s.Key[i] = nft.PortRange
	}
	if setFlags(s) != flags || expression != "" && !s.Counters && s.Limits == nft.NoLimits || !isWritable(s, keyLength, valueLength, f) {
		s.Key = nil
	}
	return s, count, err
}

func ExpressionName(a netlinkio.Attributes) (name string) {
	for a.Next() {
		if a.Type == unix.NFTA_EXPR_NAME {
			name = string(a.Text())
		}
	}
	return name
}

// isWritable reports whether we could have written a set, by its key and the
// kernel's lengths of key and data. Foreign sets have keys of a single port, for
// example, which is not padded, or intervals of ports.
func isWritable(s *nft.Set, key, value uint32, f model.Family) bool {
	if !slices.Contains(s.Key, nft.Address) && !slices.Equal(s.Key, classes) || s.Interval && s.Concat() && !slices.Contains(s.Key, nft.Source) && !slices.Contains(s.Key, nft.PortRange) {
		return false
	}
	if key != uint32(totalWidth(s.Key, f)) {
		return false
	}
	if len(s.Data) == 0 || s.Data[0] == nft.Verdicts {
		return true
	}
	isData := func(types ...nft.Datatype) bool { return slices.Equal(s.Data, types) }
	return (isData(nft.Address, nft.Port) || isData(nft.Address) || isData(nft.ClassID)) && value == uint32(totalWidth(s.Data, f))
}

func actionOf(code int32) nft.Action {
	if i := slices.Index(verdictCodes[nft.Accept:], expr.VerdictKind(code)); i >= 0 {
		return nft.Accept + nft.Action(i)
	}
	return nft.NoAction
}
