package kernel

import (
	"encoding/binary"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"

	"golang.org/x/sys/unix"
)

// element appends a change of one element to the lists under way. All
// deletions of a list go before its additions, so that a replaced element is
// gone when the new one comes.
func (e *encoder) element(c *plan.Change) {
	if e.set != c.Set || e.family != c.Family {
		e.flushLists()
		e.set, e.family = c.Set, c.Family
	}
	if c.Old != nil {
		e.deletions.append(c.Set, c.Family, c.Old)
	}
	if c.New != nil {
		e.additions.timeout = c.Timeout
		e.additions.append(c.Set, c.Family, c.New)
	}
	if len(e.deletions.data) > maxList || len(e.additions.data) > maxList {
		e.flushLists()
	}
}

// flushLists ends the lists of elements under way.
func (e *encoder) flushLists() {
	for _, l := range []*elementList{&e.deletions, &e.additions} {
		if len(l.parts) > 0 {
			e.messages = append(e.messages, l.message())
		}
	}
}

// message ends the message.
func (l *elementList) message() Message {
	l.data.end(l.list)
	m := Message{Type: l.verb, Data: slices.Clone(l.data), Set: l.set, parts: slices.Clone(l.parts)}
	if l.verb == unix.NFT_MSG_NEWSETELEM {
		m.Flags = netlink.Create
	}
	l.data, l.parts = l.data[:0], l.parts[:0]
	return m
}

func (l *elementList) append(s *nft.Set, f model.Family, el *nft.Element) {
	if len(l.data) == 0 {
		l.set = s
		l.data = append(l.data, begin(f)...)
		l.data.string(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName)
		l.data.string(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		l.list = l.data.start(unix.NFTA_SET_ELEM_LIST_ELEMENTS | nested)
	}
	switch {
	case !s.Interval:
		l.keyed(el, el.Key, nil)
	case s.Concat():
		last := el.Key
		last.Source = lastOf(s.Prefix(el.Key, nft.Source))
		l.keyed(el, el.Key, &last)
	default:
		l.keyed(el, el.Key, nil)
		if end := intervalEnd(el.Key); end.IsValid() {
			l.intervalEnd(el, nft.Key{Address: end})
		}
	}
}

// keyed appends an element. An interval of concatenations is one element with a
// last key.
func (l *elementList) keyed(el *nft.Element, key nft.Key, last *nft.Key) {
	a := &l.data
	l.parts = append(l.parts, part{offset: len(*a), element: el})
	element := a.start(unix.NFTA_LIST_ELEM | nested)
	appendElementKey(a, unix.NFTA_SET_ELEM_KEY, l.set, key)
	if last != nil {
		appendElementKey(a, elementKeyEnd, l.set, *last)
	}
	if l.verb == unix.NFT_MSG_NEWSETELEM {
		appendData(a, l.set, el)
		if l.timeout > 0 {
			a.bytes(unix.NFTA_SET_ELEM_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(l.timeout.Milliseconds())))
		}
	}
	a.end(element)
}

// intervalEnd appends the second element of an interval of addresses: it is
// marked as the end, and its key is the first address behind the interval.
func (l *elementList) intervalEnd(el *nft.Element, key nft.Key) {
	a := &l.data
	l.parts = append(l.parts, part{offset: len(*a), element: el})
	element := a.start(unix.NFTA_LIST_ELEM | nested)
	a.uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	appendElementKey(a, unix.NFTA_SET_ELEM_KEY, l.set, key)
	a.end(element)
}

func appendElementKey(a *attributes, typ uint16, s *nft.Set, k nft.Key) {
	outer := a.start(typ | nested)
	value := a.start(unix.NFTA_DATA_VALUE)
	*a = appendKey(*a, s, k)
	a.end(value)
	a.end(outer)
}

// elementKeyEnd is NFTA_SET_ELEM_KEY_END.
const elementKeyEnd = 10

// appendData appends the value of a map element and the comment.
func appendData(a *attributes, s *nft.Set, el *nft.Element) {
	if len(s.Data) > 0 {
		data := a.start(unix.NFTA_SET_ELEM_DATA | nested)
		if s.Data[0] == nft.Verdicts {
			appendVerdict(a, el.Value.Verdict)
		} else {
			value := a.start(unix.NFTA_DATA_VALUE)
			*a = appendEndpoint(*a, el.Value.Endpoint)
			a.end(value)
		}
		a.end(data)
	}
	if el.Comment != "" {
		notes := a.start(unix.NFTA_SET_ELEM_USERDATA)
		(*userdata)(a).string(udataElemComment, el.Comment)
		a.end(notes)
	}
}

// appendVerdict appends a verdict as data of an element.
func appendVerdict(a *attributes, v nft.Verdict) {
	end := a.nest(unix.NFTA_DATA_VERDICT)
	a.uint32(unix.NFTA_VERDICT_CODE, uint32(verdictCode(v.Action)))
	if v.Chain != "" {
		a.string(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	end()
}

// Expression and protocol numbers that nft uses in its notes on a set declared
// by "typeof": its enum expr_types, the ids of its protocol descriptions and
// the fields in them.
const (
	nftExprPayload = 7
	nftExprMeta    = 9
	nftExprConcat  = 13
	nftExprNumgen  = 23

	nftDescTransport = 11
	nftDescIPv4      = 12
	nftDescIPv6      = 13

	nftTransportDport = 2
	nftIPv4Daddr      = 12
	nftIPv6Daddr      = 9
)

// setUserdata returns nft's notes on a set, without which its listing would
// not be what was loaded. A set with slots is declared by the expressions
// behind its key, because a slot has no type name.
func setUserdata(s *nft.Set, f model.Family) userdata {
	var u userdata
	u.uint32(udataSetKeyByteOrder, byteOrder(s.Key))
	if len(s.Data) > 0 {
		u.uint32(udataSetDataByteOrder, 0)
	}
	if plan.HasSlots(s) {
		u.bytes(udataSetKeyTypeof, typeof(s.Key, f))
		u.bytes(udataSetDataTypeof, typeof(s.Data, f))
	}
	return u
}

// byteOrder returns the byte order of a key; a concatenation has none.
func byteOrder(types []nft.Datatype) uint32 {
	if len(types) == 1 {
		return byteOrderBig
	}
	return 0
}

// typeof describes a concatenation of expressions: entry 0 names the kind of
// expression, entry 1 holds its parts.
func typeof(types []nft.Datatype, f model.Family) userdata {
	var parts userdata
	for i, d := range types {
		parts.bytes(uint8(i), typeofField(d, f))
	}
	var u userdata
	u.uint32(0, nftExprConcat)
	u.bytes(1, parts)
	return u
}

func typeofField(d nft.Datatype, f model.Family) userdata {
	kind, values := uint32(nftExprPayload), []uint32{nftDescIPv4, nftIPv4Daddr}
	switch {
	case d == nft.InetProto:
		kind, values = nftExprMeta, []uint32{unix.NFT_META_L4PROTO}
	case d == nft.Port:
		values = []uint32{nftDescTransport, nftTransportDport}
	case d == nft.Slot:
		kind, values = nftExprNumgen, []uint32{unix.NFT_NG_INCREMENTAL, 2, 0} // mode, modulus, offset
	case f == model.IPv6:
		values = []uint32{nftDescIPv6, nftIPv6Daddr}
	}
	var fields, u userdata
	for i, v := range values {
		fields.uint32(uint8(i), v)
	}
	u.uint32(0, kind)
	u.bytes(1, fields)
	return u
}
