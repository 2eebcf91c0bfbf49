package traffic

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

const (
	// patience is how long an endpoint may take to answer the first packet of a sample: longer
	// than one retransmission by the client, shorter than two.
	patience = 2 * time.Second
	// judging is how often samples are judged, while there are any.
	judging = 500 * time.Millisecond
	// maxSamples is how many samples wait, or are judged, at most: as many as the rules log in a
	// minute, with some more of a flood's first second.
	maxSamples = 16 << 10
)

// sample is a connection whose outcome is not known yet.
type sample struct {
	conntrack.Connection
	at   time.Time
	port model.PortName
	// endpoint is where the first packet has left this machine to, or reached it; not valid: it has not.
	endpoint netip.AddrPort
	unsure   bool // the message about that may be lost
}

// served is what a connection is counted for: an endpoint of a service port, or the service port in an IP family, with
// the unspecified address as its endpoint. It is comparable.
type served struct {
	Port     model.PortName
	Endpoint netip.AddrPort
}

// Samples finds the outcomes of sampled connections. It is safe for concurrent use.
type Samples struct {
	kernel Kernel
	judge  Judge
	log    *slog.Logger

	mu      sync.Mutex
	waiting []*sample                  // oldest first
	of      map[netip.AddrPort]*sample // the same, by client
	lost    uint64                     // messages that the kernel has dropped
	counts  map[served]*outcomeCounts
	totals  totals
	more    chan struct{} // has an element if samples wait

	failed bool // the last question to the kernel; only Run uses it
}

// Judge learns from each outcome of an endpoint, with the time of the sample.
type Judge interface {
	Judge(endpoint netip.AddrPort, o conntrack.Outcome, at time.Time)
}

// NewSamples returns a collection without samples.
func NewSamples(k Kernel, j Judge, log *slog.Logger) *Samples {
	return &Samples{
		kernel: k, judge: j, log: log, of: make(map[netip.AddrPort]*sample), counts: make(map[served]*outcomeCounts), totals: make(totals), more: make(chan struct{}, 1),
	}
}

// add adds a connection to a service port, by its first packet, which is to be translated. A client that tries again
// has the same port.
func (s *Samples) add(n *nflog.Event, port model.PortName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := n.Client()
	if s.of[client] != nil || len(s.waiting) >= maxSamples {
		return
	}
	one := &sample{Connection: conntrack.Connection{Protocol: n.Protocol, Client: client, Dialled: n.Dialled()}, at: time.Now(), port: port}
	s.waiting, s.of[client] = append(s.waiting, one), one
	parallel.Signal(s.more)
}

// pass notes that the first packet of a connection leaves this machine, or has reached it.
func (s *Samples) pass(n *nflog.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.of[n.Client()]; one != nil && (!n.Tracked || n.Dialled() == one.Dialled) {
		one.endpoint = n.Destination
	}
}

// missed notes how many messages the kernel has dropped since they are read.
func (s *Samples) missed(lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost == s.lost {
		return
	}
	s.lost = lost
	for _, one := range s.waiting {
		one.unsure = true
	}
}

// Run judges samples until ctx ends. It sleeps while there are none.
func (s *Samples) Run(ctx context.Context) { judgeAll(ctx, s.more, s.judgeDue) }

// judgeAll calls judge when there is more, and again as long as others wait, until ctx ends.
func judgeAll(ctx context.Context, more <-chan struct{}, judge func(time.Time) (others bool)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
		for judge(time.Now()) {
			if !parallel.Wait(ctx, judging) {
				return
			}
		}
	}
}

// judgeDue finds the outcomes of the samples that have waited long enough, and reports whether
// others wait.
func (s *Samples) judgeDue(now time.Time) (others bool) {
	due := s.due(now)
	connections := make([]conntrack.Connection, len(due))
	for i := range due {
		connections[i] = due[i].Connection
	}
	var outcomes []conntrack.Outcome
	if len(due) > 0 {
		outcomes = s.ask(connections)
	}
	for i := range outcomes {
		if due[i].endpoint.IsValid() {
			s.judge.Judge(due[i].endpoint, outcomes[i], due[i].at)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range outcomes {
		switch passed := due[i].endpoint.IsValid(); {
		case passed:
			s.count(due[i], o)
		case o == conntrack.Refused && !due[i].unsure: // it has no entry
			s.count(due[i], conntrack.Dropped)
		}
	}
	return len(s.waiting) > 0
}

// ask asks the kernel, and logs the first of several errors in a row.
func (s *Samples) ask(connections []conntrack.Connection) (outcomes []conntrack.Outcome) {
	entries, err := s.kernel.EntriesOf(connections)
	if err != nil && !s.failed {
		s.log.Error("the outcome of connections is not known", "error", err)
	}
	if s.failed = err != nil; err != nil {
		return nil
	}
	for _, e := range entries {
		outcomes = append(outcomes, e.Outcome())
	}
	return outcomes
}

// due removes the samples that have waited long enough, and returns them.
func (s *Samples) due(now time.Time) []*sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.waiting) && now.Sub(s.waiting[n].at) >= patience {
		n++
	}
	due := s.waiting[:n:n]
	for _, one := range due {
		delete(s.of, one.Client)
	}
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil // give the memory back
	}
	return due
}

// count counts the outcome of a sample for its endpoint, and for the service port: for that, one that has
// left this machine counts as answered.
func (s *Samples) count(of *sample, o conntrack.Outcome) {
	s.totals.add(of.port.Service, o)
	if of.endpoint.IsValid() {
		s.countFor(served{of.port, of.endpoint}, of, o)
	}
	if o != conntrack.Dropped {
		o = conntrack.Answered
	}
	s.countFor(served{of.port, unspecified(model.FamilyOf(of.Dialled.Addr()))}, of, o)
}

// unspecified is the endpoint of connections that have not reached one.
func unspecified(f model.Family) netip.AddrPort {
	if f == model.IPv6 {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
}

func (s *Samples) countFor(of served, one *sample, o conntrack.Outcome) {
	c := s.counts[of]
	if c == nil {
		s.forget(one.at)
		if len(s.counts) >= maxSamples {
			return
		}
		c = new(outcomeCounts)
		s.counts[of] = c
	}
	c.add(one.at, fair.ClientOf(one.Client.Addr()), o)
}

// forget removes what has no sample in the window. The rules log a limited number of samples,
// so there are few.
func (s *Samples) forget(now time.Time) {
	maps.DeleteFunc(s.counts, func(_ served, c *outcomeCounts) bool { _, all := c.sum(now); return all == 0 })
}

// parts of a minute, in each of which outcomes are counted together.
const (
	parts    = 6
	partTime = 10 * time.Second
)

// outcomeCounts has the outcomes of a minute.
type outcomeCounts struct {
	parts [parts]struct {
		number int64 // of the part since 1970
		counts [conntrack.Outcomes]uint16
	}
	failed int // samples since the last one that was answered
	// client is the one that opened all of these; not valid: several did.
	client netip.Prefix
}

func (c *outcomeCounts) add(at time.Time, client netip.Prefix, o conntrack.Outcome) {
	number := at.UnixNano() / int64(partTime)
	p := &c.parts[number%parts]
	if p.number != number {
		p.number, p.counts = number, [conntrack.Outcomes]uint16{}
	}
	if p.counts[o] < ^uint16(0) {
		p.counts[o]++
	}
	switch c.failed++; {
	case o == conntrack.Answered:
		c.failed = 0
	case c.failed == 1:
		c.client = client
	case c.client != client:
		c.client = netip.Prefix{}
	}
}

// sum returns the outcomes of the last minute.
func (c *outcomeCounts) sum(now time.Time) (counts [conntrack.Outcomes]int, all int) {
	number := now.UnixNano() / int64(partTime)
	for i := range c.parts {
		if c.parts[i].number <= number-parts {
			continue
		}
		for o, n := range c.parts[i].counts {
			counts[o] += int(n)
			all += int(n)
		}
	}
	return counts, all
}

// SampleTotal is the number of samples of a Service since the start of the process, by outcome.
type SampleTotal struct {
	Service  model.ServiceName // without a name: Services beyond [budget.SampledServices]
	Outcomes [conntrack.Outcomes]uint64
}

// totals are the samples by Service. A Service that is gone keeps its numbers: a counter that
// begins again at zero is none.
type totals map[model.ServiceName]*[conntrack.Outcomes]uint64

func (t totals) add(of model.ServiceName, o conntrack.Outcome) {
	if t[of] == nil {
		if len(t) >= budget.SampledServices {
			of = model.ServiceName{}
		}
		if t[of] == nil {
			t[of] = new([conntrack.Outcomes]uint64)
		}
	}
	t[of][o]++
}

// Totals returns the samples since the start of the process, sorted by Service.
func (s *Samples) Totals() []SampleTotal {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []SampleTotal
	for _, name := range slices.SortedFunc(maps.Keys(s.totals), model.ServiceName.Compare) {
		out = append(out, SampleTotal{name, *s.totals[name]})
	}
	return out
}

// judged returns the number of all samples, and of those without an answer.
func (s *Samples) judged() (all, failed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, outcomes := range s.totals {
		for o, n := range outcomes {
			if all += n; conntrack.Outcome(o) != conntrack.Answered {
				failed += n
			}
		}
	}
	return all, failed
}

// DroppedOf returns the samples of a service port of the last minute, and how many of them were dropped.
func (s *Samples) DroppedOf(port model.PortName, now time.Time) (dropped, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range model.Families {
		if c := s.counts[served{port, unspecified(f)}]; c != nil {
			counts, n := c.sum(now)
			dropped, all = dropped+counts[conntrack.Dropped], all+n
		}
	}
	return dropped, all
}

// Of returns the outcomes of the last minute of an endpoint of a service port.
func (s *Samples) Of(port model.PortName, endpoint netip.AddrPort, now time.Time) (counts [conntrack.Outcomes]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counts[served{port, endpoint}]; c != nil {
		counts, _ = c.sum(now)
	}
	return counts
}
