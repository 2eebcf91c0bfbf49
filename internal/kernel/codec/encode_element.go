package codec

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// maxList is the most bytes of elements in one message. The length of a netlink
// attribute has 16 bits; the rest of the message is small.
const maxList = 60 << 10

const (
	elementKeyEnd      = 10  // NFTA_SET_ELEM_KEY_END
	elementExpressions = 11  // NFTA_SET_ELEM_EXPRESSIONS, since kernel 5.11
	ElementCatchAll    = 0x2 // NFT_SET_ELEM_CATCHALL
)

// usualList is enough for a few elements, in bytes.
const usualList = 256

// ElementList is a message of elements under construction.
type ElementList struct {
	Verb    uint16
	set     *nft.Set
	data    Attributes // with the header; empty before the first element
	list    int        // offset of the attribute that holds the elements
	parts   []part
	timeout time.Duration // of the elements that are appended next
	// The length of the last message, and its parts: the next one may be as long.
	lastData, lastParts int
}

// encodeElement appends a change of one element to the open lists. The deletions of
// a list go before its additions, so a replaced element is gone before the new
// one is added.
func (e *encoder) encodeElement(c *plan.Change) {
	if e.set != c.Set || e.family != c.Family {
		e.flushLists()
		e.set, e.family = c.Set, c.Family
	}
	if c.Old != nil {
		e.open(&e.deletions).Append(c.Set, c.Family, c.Old)
	}
	if c.New != nil {
		e.additions.timeout = c.Timeout
		e.open(&e.additions).Append(c.Set, c.Family, c.New)
	}
	if len(e.deletions.data) > maxList || len(e.additions.data) > maxList {
		e.flushLists()
	}
}

func (e *encoder) flushLists() {
	for _, l := range [...]*ElementList{&e.deletions, &e.additions} {
		if len(l.parts) > 0 {
			e.messages = append(e.messages, l.Message())
		}
	}
}

// open returns a list, in the memory of a message that is no longer in use if there is one.
func (e *encoder) open(l *ElementList) *ElementList {
	if last := len(e.spare) - 1; last >= 0 && l.data == nil {
		l.data, l.parts = e.spare[last].Data[:0], e.spare[last].Parts[:0]
		e.spare = e.spare[:last]
	}
	return l
}

// Message returns the message, and begins the next.
func (l *ElementList) Message() Message {
	l.data.End(l.list)
	m := Message{Type: l.Verb, Data: l.data, Set: l.set, Parts: l.parts}
	if l.Verb == unix.NFT_MSG_NEWSETELEM {
		m.Flags = netlink.Create
	}
	l.lastData, l.lastParts = len(m.Data), len(m.Parts)
	l.data, l.parts = nil, nil
	return m
}

func (l *ElementList) Append(s *nft.Set, f model.Family, el *nft.Element) {
	if len(l.data) == 0 {
		l.set = s
		l.data = slices.Grow(l.data, max(usualList, l.lastData))
		l.parts = slices.Grow(l.parts, l.lastParts)
		l.data = append(l.data, FamilyNumber(f), unix.NFNETLINK_V0, 0, 0)
		l.data.Text(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName)
		l.data.Text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		l.list = l.data.Start(unix.NFTA_SET_ELEM_LIST_ELEMENTS | Nested)
	}
	if s.Interval && s.Concat() {
		last := lastKey(s, el.Key)
		l.appendKeyed(el, &last)
		return
	}
	l.appendKeyed(el, nil)
	if s.Interval {
		if end := intervalEnd(el.Key); end.IsValid() {
			l.intervalEnd(el, end)
		}
	}
}

// appendKeyed appends an element. An interval of concatenations is one element with a
// last key.
func (l *ElementList) appendKeyed(el *nft.Element, last *nft.Key) {
	a := &l.data
	l.parts = append(l.parts, part{Offset: len(*a), Element: el})
	element := a.Start(unix.NFTA_LIST_ELEM | Nested)
	AppendElementKey(a, unix.NFTA_SET_ELEM_KEY, l.set, el.Key)
	if last != nil {
		AppendElementKey(a, elementKeyEnd, l.set, *last)
	}
	if l.Verb == unix.NFT_MSG_NEWSETELEM {
		appendData(a, l.set, el)
		if l.set.Limits != nft.NoLimits {
			appendLimit(a, unix.NFTA_SET_ELEM_EXPR, el.Value.Limit(l.set.Limits))
		}
		if l.timeout > 0 {
			a.appendBytes(unix.NFTA_SET_ELEM_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(l.timeout.Milliseconds())))
		}
	}
	a.End(element)
}

// intervalEnd appends the second element of an interval of addresses: its key is
// the first address behind the interval.
func (l *ElementList) intervalEnd(el *nft.Element, end netip.Addr) {
	a := &l.data
	l.parts = append(l.parts, part{Offset: len(*a), Element: el})
	element := a.Start(unix.NFTA_LIST_ELEM | Nested)
	a.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	AppendElementKey(a, unix.NFTA_SET_ELEM_KEY, l.set, nft.Key{Address: end})
	a.End(element)
}

func AppendElementKey(a *Attributes, typ uint16, s *nft.Set, k nft.Key) {
	outer := a.Start(typ | Nested)
	value := a.Start(unix.NFTA_DATA_VALUE)
	*a = appendKey(*a, s, k)
	a.End(value)
	a.End(outer)
}

func appendData(a *Attributes, s *nft.Set, el *nft.Element) {
	if len(s.Data) > 0 {
		data := a.Start(unix.NFTA_SET_ELEM_DATA | Nested)
		switch s.Data[0] {
		case nft.Verdicts:
			appendVerdict(a, el.Value.Verdict)
		case nft.ClassID:
			a.appendBytes(unix.NFTA_DATA_VALUE, hostOrder(uint32(el.Value.Class)))
		default:
			value := a.Start(unix.NFTA_DATA_VALUE)
			*a = appendEndpoint(*a, s, el.Value.Endpoint)
			a.End(value)
		}
		a.End(data)
	}
	if el.Comment != "" {
		notes := a.Start(unix.NFTA_SET_ELEM_USERDATA)
		(*userdata)(a).string(udataElemComment, el.Comment)
		a.End(notes)
	}
}

func appendVerdict(a *Attributes, v nft.Verdict) {
	end := a.Nest(unix.NFTA_DATA_VERDICT)
	a.Uint32(unix.NFTA_VERDICT_CODE, uint32(verdictCodes[v.Action]))
	if v.Chain != "" {
		a.Text(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	end()
}

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

func lastOf(p netip.Prefix) netip.Addr {
	last := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(last) // 4 or 16 bytes
	return a
}

// JoinIntervals turns the starts and ends of an interval set into intervals. nft
// puts an end without a start before the first one; it has no meaning.
func JoinIntervals(in []Element) []nft.Element {
	slices.SortFunc(in, func(a, b Element) int {
		if c := a.Key.Compare(b.Key); c != 0 || a.IntervalEnd == b.IntervalEnd {
			return c
		}
		if a.IntervalEnd {
			return -1
		}
		return 1
	})
	var out []nft.Element
	for i, e := range in {
		if e.IntervalEnd {
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

func lastKey(s *nft.Set, k nft.Key) nft.Key {
	if slices.Contains(s.Key, nft.PortRange) {
		k.Port = uint16(k.Slot)
	}
	if slices.Contains(s.Key, nft.Source) {
		k.Source = lastOf(s.Prefix(k, nft.Source))
	}
	return k
}

// ConcatIntervals gives the elements of an interval set of concatenations the ends of
// their intervals. It reports whether we could have written all of them.
func ConcatIntervals(s *nft.Set, in []Element) (out []nft.Element, ok bool) {
	out = make([]nft.Element, len(in))
	for i, e := range in {
		if e.Key, ok = concatInterval(s, e.Key, e.last); !ok {
			return nil, false
		}
		out[i] = e.Element
	}
	return out, true
}

// concatInterval returns the key of an interval: single values except for a range of
// ports, and for a prefix of the source address.
func concatInterval(s *nft.Set, first, last nft.Key) (k nft.Key, ok bool) {
	k = first
	if slices.Contains(s.Key, nft.PortRange) {
		k.Slot, last.Port = uint32(last.Port), first.Port
	}
	if slices.Contains(s.Key, nft.Source) {
		source := nft.Key{Address: first.Source}
		setInterval(&source, last.Source.Next())
		k.Bits, last.Source = source.Bits, first.Source
	}
	return k, k.Bits != nft.Range && last == first
}
