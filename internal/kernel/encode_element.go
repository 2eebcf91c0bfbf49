package kernel

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

// elementKeyEnd is NFTA_SET_ELEM_KEY_END.
const elementKeyEnd = 10

// elementList is a message of elements under construction. Its memory is reused
// for the next message.
type elementList struct {
	verb    uint16
	set     *nft.Set
	data    attributes // with the header; empty before the first element
	list    int        // offset of the attribute that holds the elements
	parts   []part
	timeout time.Duration // of the elements that are appended next
}

// element appends a change of one element to the open lists. The deletions of
// a list go before its additions, so a replaced element is gone before the new
// one is added.
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

func (e *encoder) flushLists() {
	for _, l := range []*elementList{&e.deletions, &e.additions} {
		if len(l.parts) > 0 {
			e.messages = append(e.messages, l.message())
		}
	}
}

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
	if s.Interval && s.Concat() {
		last := el.Key
		last.Source = lastOf(s.Prefix(el.Key, nft.Source))
		l.keyed(el, &last)
		return
	}
	l.keyed(el, nil)
	if s.Interval {
		if end := intervalEnd(el.Key); end.IsValid() {
			l.intervalEnd(el, end)
		}
	}
}

// keyed appends an element. An interval of concatenations is one element with a
// last key.
func (l *elementList) keyed(el *nft.Element, last *nft.Key) {
	a := &l.data
	l.parts = append(l.parts, part{offset: len(*a), element: el})
	element := a.start(unix.NFTA_LIST_ELEM | nested)
	appendElementKey(a, unix.NFTA_SET_ELEM_KEY, l.set, el.Key)
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

// intervalEnd appends the second element of an interval of addresses: its key is
// the first address behind the interval.
func (l *elementList) intervalEnd(el *nft.Element, end netip.Addr) {
	a := &l.data
	l.parts = append(l.parts, part{offset: len(*a), element: el})
	element := a.start(unix.NFTA_LIST_ELEM | nested)
	a.uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	appendElementKey(a, unix.NFTA_SET_ELEM_KEY, l.set, nft.Key{Address: end})
	a.end(element)
}

func appendElementKey(a *attributes, typ uint16, s *nft.Set, k nft.Key) {
	outer := a.start(typ | nested)
	value := a.start(unix.NFTA_DATA_VALUE)
	*a = appendKey(*a, s, k)
	a.end(value)
	a.end(outer)
}

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

func appendVerdict(a *attributes, v nft.Verdict) {
	end := a.nest(unix.NFTA_DATA_VERDICT)
	a.uint32(unix.NFTA_VERDICT_CODE, uint32(verdictCodes[v.Action]))
	if v.Chain != "" {
		a.string(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	end()
}
