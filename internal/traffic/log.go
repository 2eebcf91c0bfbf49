package traffic

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Log has the last events. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	ring    []Event // the event of a number is at the number modulo its length
	last    uint64  // number of the newest event; zero: there is none
	more    chan struct{}
	started time.Time
	minutes [window]minute
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{ring: make([]Event, Capacity), started: time.Now()} }

// Add adds an event, gives it its number and wakes those that wait.
func (l *Log) Add(e *Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Number = l.last
	l.ring[e.Number%Capacity] = *e
	if e.Outcome.Failed() {
		l.minuteOf(e.Time).add(e)
	}
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// Query selects events.
type Query struct {
	// After is the number of an event: the first Limit later ones are returned. Zero: the last
	// Limit ones. A number that no event has yet is of an earlier process: all are returned.
	After uint64
	Limit int
}

// Selection answers a query.
type Selection struct {
	Events []Event // oldest first
	// Next is the number to ask with for the events that follow.
	Next uint64
	// Missed is how many later events than After are no longer kept.
	Missed uint64
}

// Select returns events that match; nil: all do.
func (l *Log) Select(q Query, match func(*Event) bool) Selection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.selected(q, match)
}

func (l *Log) selected(q Query, match func(*Event) bool) (s Selection) {
	oldest := uint64(1)
	if l.last > Capacity {
		oldest = l.last - Capacity + 1
	}
	s.Next = l.last
	if q.After == 0 {
		for n := l.last; n >= oldest && len(s.Events) < q.Limit; n-- {
			if e := &l.ring[n%Capacity]; match == nil || match(e) {
				s.Events = append(s.Events, *e)
			}
		}
		slices.Reverse(s.Events)
		return s
	}
	from := q.After + 1
	switch {
	case q.After > l.last:
		from = oldest
	case from < oldest:
		s.Missed, from = oldest-from, oldest
	}
	for n := from; n <= l.last; n++ {
		if e := &l.ring[n%Capacity]; match != nil && !match(e) {
			continue
		}
		if len(s.Events) == q.Limit {
			s.Next = s.Events[q.Limit-1].Number
			return s
		}
		s.Events = append(s.Events, l.ring[n%Capacity])
	}
	return s
}

// Await returns events as soon as there are any, or none when ctx ends.
func (l *Log) Await(ctx context.Context, q Query, match func(*Event) bool) Selection {
	if q.Limit == 0 {
		return l.Select(q, match)
	}
	for {
		l.mu.Lock()
		s := l.selected(q, match)
		if len(s.Events) > 0 || s.Missed > 0 || ctx.Err() != nil {
			l.mu.Unlock()
			return s
		}
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
	}
}
