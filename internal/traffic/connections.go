package traffic

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

const (
	// MaxFollowed is how many connections are followed at the same time.
	MaxFollowed = 16 << 10
	// search is how often the entries of open connections are looked for.
	search = time.Minute
	// dialledTime is how long the packet before the translation of its destination is kept.
	dialledTime = 10 * time.Second
)

// ends identifies a connection by its client and endpoint, which all of its messages have. It
// is comparable.
type ends struct {
	protocol         model.Protocol
	client, endpoint netip.AddrPort
}

// followed is a connection whose end is not known yet.
type followed struct {
	conntrack.Connection
	endpoint netip.AddrPort
	port     model.PortName
	begun    time.Time
	ended    time.Time // zero: not yet
	how      string    // it ended: a course
	due      bool      // its end is to be told
	told     bool      // that it was answered
	searched time.Time
}

// dialledFrom identifies the first packet of a connection before its translation. It is
// comparable.
type dialledFrom struct {
	protocol model.Protocol
	client   netip.AddrPort
}

type dialled struct {
	to netip.AddrPort
	at time.Time
}

// Connections follows connections to endpoints, from the first packet to the outcome and the
// end. It is safe for concurrent use.
type Connections struct {
	kernel Kernel
	log    *slog.Logger

	mu      sync.Mutex
	open    map[ends]*followed
	ended   []*followed // which are not open, in the order of their ends
	dialled map[dialledFrom]dialled
	swept   time.Time // when old ones were last looked for
	skipped uint64
	more    chan struct{} // has an element if connections are open

	failed bool // the last question to the kernel; only Run uses it
}

// NewConnections returns a collection without connections. It asks for entries, of connections that
// have ended as they should only if these have bytes.
func NewConnections(k Kernel, log *slog.Logger) *Connections {
	return &Connections{kernel: k, log: log, open: make(map[ends]*followed), dialled: make(map[dialledFrom]dialled), more: make(chan struct{}, 1)}
}

// Skipped returns how many connections were not followed, because too many were open.
func (s *Connections) Skipped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.skipped
}

// dial notes what a client has dialled.
func (s *Connections) dial(n *nflog.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.dialled) >= MaxFollowed && now.Sub(s.swept) > dialledTime/8 { // not for each packet of a flood
		s.swept = now
		maps.DeleteFunc(s.dialled, func(_ dialledFrom, d dialled) bool { return now.Sub(d.at) > dialledTime })
	}
	if len(s.dialled) < MaxFollowed {
		s.dialled[dialledFrom{n.Protocol, n.Source}] = dialled{n.Destination, now}
	}
}

// dialledBy returns what the client of a first packet has dialled, and forgets it.
func (s *Connections) dialledBy(n *nflog.Event) (netip.AddrPort, bool) {
	if n.Tracked {
		return n.Dialled(), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := dialledFrom{n.Protocol, n.Source}
	d, ok := s.dialled[from]
	delete(s.dialled, from)
	return d.to, ok
}

// begin follows the connection of a first packet, which is to its endpoint.
func (s *Connections) begin(n *nflog.Event, to netip.AddrPort, port model.PortName) {
	key := ends{n.Protocol, n.Source, n.Destination}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.open[key]; before != nil { // its end was not seen
		how := model.Unanswered
		if before.told {
			how = model.Expired
		}
		s.finish(key, before, how)
	}
	if len(s.open)+len(s.ended) >= MaxFollowed {
		s.skipped++
		return
	}
	s.open[key] = &followed{
		Connection: conntrack.Connection{Protocol: n.Protocol, Client: n.Source, Dialled: to},
		endpoint:   n.Destination, port: port, begun: time.Now(),
	}
	parallel.Signal(s.more)
}

// end notes a segment that ends a connection. The first one counts, also a reset, and also one without
// a message that the connection of a later one shows.
func (s *Connections) end(n *nflog.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, how, reset := ends{n.Protocol, n.Source, n.Destination}, model.ClientClosed, model.ClientReset
	c := s.open[key]
	if c == nil {
		key, how, reset = ends{n.Protocol, n.Destination, n.Source}, model.ServerClosed, model.ServerReset
		if c = s.open[key]; c == nil {
			return
		}
	}
	switch {
	case n.Flow.ClosedBy == conntrack.ClientSide:
		how = model.ClientClosed
	case n.Flow.ClosedBy == conntrack.EndpointSide:
		how = model.ServerClosed
	case n.Reset:
		how = reset
	}
	s.finish(key, c, how)
}

// finish notes how a connection has ended. Another one may have its ends from now on.
func (s *Connections) finish(key ends, c *followed, how string) {
	c.ended, c.how = time.Now(), how
	delete(s.open, key)
	s.ended = append(s.ended, c)
}

// Run finds outcomes until ctx ends, and calls emit for each. It sleeps while no connection is
// open.
func (s *Connections) Run(ctx context.Context, emit func(*Event)) {
	judgeAll(ctx, s.more, func(now time.Time) bool { return s.judge(now, emit) })
}

// judge emits what is known of the connections that have ended, or were open for long enough,
// and reports whether others are open.
func (s *Connections) judge(now time.Time, emit func(*Event)) (others bool) {
	if due := s.due(now); len(due) > 0 {
		entries, err := s.ask(due)
		if err != nil && !s.failed {
			s.log.Error("the outcome of connections is not known", "error", err)
		}
		if s.failed = err != nil; err == nil {
			for i, c := range due {
				if told := s.tell(c, entries[i], now); told != nil {
					emit(told)
				}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)+len(s.ended) > 0
}

// ask returns the entries of connections; nil: there is none, or it would say nothing new.
func (s *Connections) ask(due []*followed) ([]*conntrack.Entry, error) {
	connections, at := s.unknown(due, s.kernel.CountsBytes())
	out := make([]*conntrack.Entry, len(due))
	if len(connections) == 0 {
		return out, nil
	}
	found, err := s.kernel.EntriesOf(connections)
	for i, e := range found {
		out[at[i]] = e
	}
	return out, err
}

// unknown returns the connections whose entries say something new, and their places.
func (s *Connections) unknown(due []*followed, counts bool) (connections []conntrack.Connection, at []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range due {
		later := c.how == model.Expired || c.how == model.Unanswered // the entry is the one of a later connection
		closed := c.how == model.ClientClosed || c.how == model.ServerClosed
		if !later && (counts || !closed) {
			connections, at = append(connections, c.Connection), append(at, i)
		}
	}
	return connections, at
}

// due returns the connections to ask about, oldest first. An end is looked at some time later, so that
// it is the end for both sides.
func (s *Connections) due(now time.Time) (out []*followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.ended) && now.Sub(s.ended[n].ended) >= judging/2 {
		n++
	}
	out = append(out, s.ended[:n]...)
	for _, c := range out {
		c.due = true
	}
	if s.ended = slices.Delete(s.ended, 0, n); len(s.ended) == 0 {
		s.ended = nil // give the memory back
	}
	for _, c := range s.open {
		if !c.told && now.Sub(c.begun) >= patience || c.told && now.Sub(c.searched) >= search {
			c.searched = now
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *followed) int { return a.begun.Compare(b.begun) })
	return out
}

// tell returns what is new about a connection, with its entry; nil: nothing.
func (s *Connections) tell(c *followed, entry *conntrack.Entry, now time.Time) *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ended.IsZero() && !c.due {
		return nil // it has ended meanwhile
	}
	e := &Event{Time: now, Protocol: c.Protocol, Client: c.Client, Dialled: c.Dialled, Endpoint: c.endpoint, Service: c.port}
	switch ended := !c.ended.IsZero(); {
	case ended && c.how == model.ServerReset && entry == nil && !c.told: // the kernel has removed the entry
		e.Reason = model.EndpointRefused
	case ended && c.how == model.ClientReset && !c.told && (entry == nil || !entry.Answered): // it has given up
		e.Reason = model.Unanswered
	case ended:
		e.Reason = c.how
	case c.told && entry != nil:
		return nil
	case c.told:
		e.Reason = model.Expired
	case entry == nil || !entry.Answered:
		e.Reason = model.Unanswered
	default:
		e.Reason, c.told = model.AnsweredOpen, true
	}
	e.Outcome, e.Duration = model.CourseOf(e.Reason).Outcome, now.Sub(c.begun)
	if !c.ended.IsZero() {
		e.Time, e.Duration = c.ended, c.ended.Sub(c.begun)
	}
	if entry != nil {
		e.Counted, e.Sent, e.Received = entry.Counted, entry.Sent, entry.Received
	}
	if !c.told || !c.ended.IsZero() || e.Reason == model.Expired || c.Protocol != model.TCP {
		s.forget(c)
	}
	return e
}

// forget removes a connection, unless another one has taken its place.
func (s *Connections) forget(c *followed) {
	if key := (ends{c.Protocol, c.Client, c.endpoint}); s.open[key] == c {
		delete(s.open, key)
	}
}
