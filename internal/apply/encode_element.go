package apply

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// element appends a change of one element to the lists under way. All
// deletions of a list go before its additions, so that a replaced element is
// gone when the new one comes.
func (e *encoder) element(c *Change) {
	if e.deletions.set != c.Set || e.deletions.family != c.Family {
		e.flushLists()
		e.deletions = elementList{verb: unix.NFT_MSG_DELSETELEM, family: c.Family, set: c.Set}
		e.additions = elementList{verb: unix.NFT_MSG_NEWSETELEM, family: c.Family, set: c.Set}
	}
	if c.Old != nil {
		e.deletions.append(c.Old)
	}
	if c.New != nil {
		e.additions.timeout = c.Timeout
		e.additions.append(c.New)
	}
	if len(e.deletions.elements) > maxList || len(e.additions.elements) > maxList {
		e.flushLists()
	}
}

// flushLists ends the lists of elements under way.
func (e *encoder) flushLists() {
	for _, l := range []*elementList{&e.deletions, &e.additions} {
		if len(l.parts) > 0 {
			e.messages = append(e.messages, l.message())
		}
		*l = elementList{}
	}
}

func (l *elementList) message() Message {
	a := make(attributes, 0, len(l.elements)+128)
	a = append(a, begin(l.family)...)
	a.string(unix.NFTA_SET_ELEM_LIST_TABLE, render.TableName)
	a.string(unix.NFTA_SET_ELEM_LIST_SET, l.set.Name)
	end := a.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range l.parts {
		l.parts[i].offset += len(a)
	}
	a = append(a, l.elements...)
	end()
	m := Message{Type: l.verb, Data: a, parts: l.parts}
	if l.verb == unix.NFT_MSG_NEWSETELEM {
		m.Flags = netlink.Create
	}
	return m
}

func (l *elementList) append(el *render.Element) {
	for _, k := range intervalKeys(l.set, el.Key) {
		l.parts = append(l.parts, part{offset: len(l.elements), element: el, set: l.set})
		l.appendKeyed(el, k)
	}
}

// keyed is a key in the kernel's form. An interval of addresses is two
// elements: its first address and, marked as the end, the first address behind
// it. An interval of concatenations is one element with a last key.
type keyed struct {
	key, last   []byte
	intervalEnd bool
}

func intervalKeys(s *render.Set, k render.Key) []keyed {
	key := appendKey(nil, s, k)
	if !s.Interval {
		return []keyed{{key: key}}
	}
	if s.Concat() {
		k.Source = lastOf(s.Prefix(k, render.Source))
		return []keyed{{key: key, last: appendKey(nil, s, k)}}
	}
	keys := []keyed{{key: k.Address.AsSlice()}}
	if end := intervalEnd(k); end.IsValid() {
		keys = append(keys, keyed{key: end.AsSlice(), intervalEnd: true})
	}
	return keys
}

func (l *elementList) appendKeyed(el *render.Element, k keyed) {
	a := &l.elements
	endElement := a.nest(unix.NFTA_LIST_ELEM)
	if k.intervalEnd {
		a.uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	endKey := a.nest(unix.NFTA_SET_ELEM_KEY)
	a.bytes(unix.NFTA_DATA_VALUE, k.key)
	endKey()
	if k.last != nil {
		endLast := a.nest(elementKeyEnd)
		a.bytes(unix.NFTA_DATA_VALUE, k.last)
		endLast()
	}
	if l.verb == unix.NFT_MSG_NEWSETELEM && !k.intervalEnd {
		appendData(a, l.set, el)
		if l.timeout > 0 {
			a.bytes(unix.NFTA_SET_ELEM_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(l.timeout.Milliseconds())))
		}
	}
	endElement()
}

// elementKeyEnd is NFTA_SET_ELEM_KEY_END.
const elementKeyEnd = 10

// appendData appends the value of a map element and the comment.
func appendData(a *attributes, s *render.Set, el *render.Element) {
	if len(s.Data) > 0 {
		end := a.nest(unix.NFTA_SET_ELEM_DATA)
		if s.Data[0] == render.Verdicts {
			appendVerdict(a, el.Value.Verdict)
		} else {
			a.bytes(unix.NFTA_DATA_VALUE, appendEndpoint(nil, el.Value.Endpoint))
		}
		end()
	}
	if el.Comment != "" {
		var u userdata
		u.string(udataElemComment, el.Comment)
		a.bytes(unix.NFTA_SET_ELEM_USERDATA, u)
	}
}

// appendVerdict appends a verdict as data of an element.
func appendVerdict(a *attributes, v render.Verdict) {
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
func setUserdata(s *render.Set, f model.Family) userdata {
	var u userdata
	u.uint32(udataSetKeyByteOrder, byteOrder(s.Key))
	if len(s.Data) > 0 {
		u.uint32(udataSetDataByteOrder, 0)
	}
	if hasSlots(s) {
		u.bytes(udataSetKeyTypeof, typeof(s.Key, f))
		u.bytes(udataSetDataTypeof, typeof(s.Data, f))
	}
	return u
}

// byteOrder returns the byte order of a key; a concatenation has none.
func byteOrder(types []render.Datatype) uint32 {
	if len(types) == 1 {
		return byteOrderBig
	}
	return 0
}

// typeof describes a concatenation of expressions: entry 0 names the kind of
// expression, entry 1 holds its parts.
func typeof(types []render.Datatype, f model.Family) userdata {
	var parts userdata
	for i, d := range types {
		parts.bytes(uint8(i), typeofField(d, f))
	}
	var u userdata
	u.uint32(0, nftExprConcat)
	u.bytes(1, parts)
	return u
}

func typeofField(d render.Datatype, f model.Family) userdata {
	kind, values := uint32(nftExprPayload), []uint32{nftDescIPv4, nftIPv4Daddr}
	switch {
	case d == render.InetProto:
		kind, values = nftExprMeta, []uint32{unix.NFT_META_L4PROTO}
	case d == render.Port:
		values = []uint32{nftDescTransport, nftTransportDport}
	case d == render.Slot:
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
