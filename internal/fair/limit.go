// Package fair shares a limited number of connections among clients.
package fair

import (
	"container/heap"
	"container/list"
	"net/netip"
	"time"
)

// Limit bounds the number of connections. A new one is always accepted. Above the limit, one of the
// client with the most goes: a flood affects only the address that it comes from. It is not safe
// for concurrent use.
type Limit[C comparable] struct {
	max int

	clients map[netip.Prefix]*client[C]
	order   order[C] // the client with the most comes first
	entries map[C]*list.Element
	added   uint64
}

// client has connections, the oldest one first.
type client[C comparable] struct {
	from netip.Prefix
	held *list.List // of entry[C]
	at   int        // in the order
}

type entry[C comparable] struct {
	connection C
	of         *client[C]
	number     uint64
}

// Idler is a connection that knows for how long it has been without data. Of others the oldest one of
// a client goes.
type Idler interface{ IdleFor() time.Duration }

// NewLimit returns a limit of so many connections, at least one.
func NewLimit[C comparable](connections int) *Limit[C] {
	return &Limit[C]{max: max(1, connections), clients: make(map[netip.Prefix]*client[C]), entries: make(map[C]*list.Element)}
}

// ClientOf returns what counts as one client: an address, or an IPv6 network of 64 bits, which one
// host can use as a whole.
func ClientOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	p, _ := a.Prefix(min(64, a.BitLen()))
	return p
}

// ClientText returns an address as such, and a network with its length.
func ClientText(client netip.Prefix) string {
	if client.IsSingleIP() {
		return client.Addr().String()
	}
	return client.String()
}

// Add adds a connection of a client. If that exceeds the limit, it removes one, which is to be closed.
func (l *Limit[C]) Add(c C, from netip.Prefix) (victim C, exceeded bool) {
	of := l.clients[from]
	if of == nil {
		of = &client[C]{from: from, held: list.New()}
		l.clients[from] = of
		of.held.PushBack(entry[C]{c, of, l.added})
		heap.Push(&l.order, of)
	} else {
		of.held.PushBack(entry[C]{c, of, l.added})
		heap.Fix(&l.order, of.at)
	}
	l.entries[c] = of.held.Back()
	l.added++
	if len(l.entries) <= l.max {
		return victim, false
	}
	victim = l.choose(l.order[0])
	l.Remove(victim)
	return victim, true
}

// looked is how many connections of a client are compared.
const looked = 16

// choose returns one of the oldest connections of a client: that without data for the longest time.
func (l *Limit[C]) choose(of *client[C]) C {
	e := of.held.Front()
	best := e.Value.(entry[C]).connection
	first, ok := any(best).(Idler)
	if !ok {
		return best
	}
	longest := first.IdleFor()
	for i := 1; i < looked && e.Next() != nil; i++ {
		e = e.Next()
		c := e.Value.(entry[C]).connection
		if d := any(c).(Idler).IdleFor(); d > longest {
			best, longest = c, d
		}
	}
	return best
}

// Remove removes a connection, if it is there.
func (l *Limit[C]) Remove(c C) {
	e := l.entries[c]
	if e == nil {
		return
	}
	delete(l.entries, c)
	of := e.Value.(entry[C]).of
	if of.held.Len() > 1 {
		of.held.Remove(e)
		heap.Fix(&l.order, of.at)
		return
	}
	heap.Remove(&l.order, of.at)
	delete(l.clients, of.from)
}

// Len returns the number of connections, and Full reports whether a further one exceeds the limit.
func (l *Limit[C]) Len() int   { return len(l.entries) }
func (l *Limit[C]) Full() bool { return len(l.entries) >= l.max }

func (l *Limit[C]) Max() int { return l.max }

// Most returns the client with the most connections, and their number; zero: there is none.
func (l *Limit[C]) Most() (from netip.Prefix, n int) {
	if len(l.order) == 0 {
		return from, 0
	}
	return l.order[0].from, l.order[0].held.Len()
}

// order is a heap. Of clients with as many connections, the one with the oldest comes first.
type order[C comparable] []*client[C]

func (o order[C]) Len() int { return len(o) }

func (o order[C]) Less(i, j int) bool {
	if a, b := o[i].held.Len(), o[j].held.Len(); a != b {
		return a > b
	}
	return o[i].oldest() < o[j].oldest()
}

func (c *client[C]) oldest() uint64 { return c.held.Front().Value.(entry[C]).number }

func (o order[C]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].at, o[j].at = i, j
}

func (o *order[C]) Push(c any) {
	c.(*client[C]).at = len(*o)
	*o = append(*o, c.(*client[C]))
}

func (o *order[C]) Pop() any {
	last := len(*o) - 1
	c := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return c
}
