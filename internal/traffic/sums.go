package traffic

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// window is how many minutes the sums are about, the present one included.
	window = 5
	// Window is that time.
	Window = window * time.Minute
	// kept is how many combinations of reason, destination and client a minute counts.
	kept = 512
)

// Refused names what refused which client, where.
type Refused struct {
	Reason   string
	Service  model.PortName
	Protocol model.Protocol
	Dialled  netip.AddrPort // if there is no Service
	Client   netip.Addr
}

// Sum is how many events there were.
type Sum struct {
	Refused
	Events uint64 // at least
	Last   time.Time
}

// minute has the sums of one minute. It keeps those with the most events, as the algorithm
// Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k
// Elements in Data Streams") does: a new one displaces the one with the fewest, and inherits
// their number as its possible error. So one that has more than a 512th of all events is kept,
// whatever the others are.
type minute struct {
	number int64
	keys   map[Refused]*entry
	heap   entries
	events map[string]uint64 // by reason; others than ours together
}

type entry struct {
	Refused
	count, surplus uint64 // of the events, at most surplus are of others
	last           time.Time
	index          int
}

// minuteOf returns the sums of the minute of a time, and forgets the oldest ones.
func (l *Log) minuteOf(t time.Time) *minute {
	number := int64(t.Sub(l.started) / time.Minute)
	m := &l.minutes[uint64(number)%window]
	if m.keys == nil || m.number != number {
		*m = minute{number: number, keys: make(map[Refused]*entry), events: make(map[string]uint64)}
	}
	return m
}

func (m *minute) add(e *Event) {
	m.events[counted(e.Reason)]++
	key := Refused{Reason: e.Reason, Service: e.Service, Protocol: e.Protocol, Client: e.Client.Addr()}
	if e.Service.Service.Name == "" {
		key.Dialled = e.Dialled
	}
	found := m.keys[key]
	switch {
	case found != nil:
	case len(m.heap) < kept:
		found = &entry{Refused: key}
		m.keys[key] = found
		heap.Push(&m.heap, found)
	default:
		found = m.heap[0]
		delete(m.keys, found.Refused)
		found.Refused, found.surplus = key, found.count
		m.keys[key] = found
	}
	found.count++
	found.last = e.Time
	heap.Fix(&m.heap, found.index)
}

// other is the reason under which events of other programs' rules are counted.
const other = "other"

func counted(reason string) string {
	if _, _, ok := model.ReasonText(reason); !ok {
		return other
	}
	return reason
}

// Sums returns the sums of the last minutes that match, the largest ones first, at most so
// many, and the number of events by reason: without match that of all events, else of the sums that match, also of
// those that are left out.
func (l *Log) Sums(now time.Time, limit int, match func(*Refused) bool) (sums []Sum, reasons map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reasons = make(map[string]uint64)
	all := make(map[Refused]Sum)
	number := int64(now.Sub(l.started) / time.Minute)
	for i := range l.minutes {
		m := &l.minutes[i]
		if m.keys == nil || m.number <= number-window {
			continue
		}
		if match == nil {
			for reason, n := range m.events {
				reasons[reason] += n
			}
		}
		for _, e := range m.heap {
			if match != nil && !match(&e.Refused) {
				continue
			}
			s := all[e.Refused]
			s.Refused, s.Events = e.Refused, s.Events+e.count-e.surplus
			if e.last.After(s.Last) {
				s.Last = e.last
			}
			all[e.Refused] = s
		}
	}
	for _, s := range all {
		sums = append(sums, s)
		if match != nil {
			reasons[counted(s.Reason)] += s.Events
		}
	}
	slices.SortFunc(sums, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Reason, b.Reason), a.Service.Compare(b.Service),
			a.Dialled.Compare(b.Dialled), a.Client.Compare(b.Client), cmp.Compare(a.Protocol, b.Protocol))
	})
	return sums[:min(len(sums), limit)], reasons
}

// entries is a heap with the fewest events at its root.
type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].count < h[j].count }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements [heap.Interface].
func (h *entries) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements [heap.Interface]. It is never called.
func (h *entries) Pop() any { return nil }
