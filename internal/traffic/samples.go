package traffic

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
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
	at time.Time
	of served
}

// served is what a connection is counted for. It is comparable.
type served struct {
	Port     model.PortName
	Endpoint netip.AddrPort
}

// Samples finds the outcomes of sampled connections. It is safe for concurrent use.
type Samples struct {
	// outcomes asks the kernel.
	outcomes func([]conntrack.Connection) ([]conntrack.Outcome, error)
	log      *slog.Logger
	// Judged, if set before Run, receives each outcome with the time of the sample.
	Judged func(netip.AddrPort, conntrack.Outcome, time.Time)

	mu      sync.Mutex
	waiting []sample // oldest first
	counts  map[served]*outcomeCounts
	totals  totals
	chosen  choice
	more    chan struct{} // has an element if samples wait

	failed bool // the last question to the kernel; only Run uses it
}

// NewSamples returns a collection without samples.
func NewSamples(outcomes func([]conntrack.Connection) ([]conntrack.Outcome, error), log *slog.Logger) *Samples {
	return &Samples{outcomes: outcomes, log: log, counts: make(map[served]*outcomeCounts), totals: make(totals), more: make(chan struct{}, 1)}
}

// add adds the first packet of a connection to a service port. Packets to frontends of other
// programs, and those without an endpoint, are no samples.
func (s *Samples) add(n *nflog.Event, port model.PortName) {
	to, ok := n.Endpoint()
	if !ok || port.Service.Name == "" || n.Protocol != model.TCP {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxSamples {
		return
	}
	s.waiting = append(s.waiting, sample{
		Connection: conntrack.Connection{Protocol: n.Protocol, Client: n.Client(), Dialled: n.Dialled()}, at: time.Now(), of: served{port, to},
	})
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// choice is how many connections were chosen as samples in a second.
type choice struct {
	second time.Time
	of     map[netip.AddrPort]int // dialled
	all    int
}

// choose adds the first packet of a connection, unless its frontend has as many samples in this second as
// the rules would log, or all have.
func (s *Samples) choose(n *nflog.Event, port model.PortName) {
	if n.Protocol == model.TCP && s.chooses(n.Dialled(), time.Now().Truncate(time.Second)) {
		s.add(n, port)
	}
}

func (s *Samples) chooses(to netip.AddrPort, second time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.chosen
	if !c.second.Equal(second) {
		*c = choice{second: second, of: c.of}
		clear(c.of)
	}
	if c.all >= model.SamplesOfAll || c.of[to] >= model.SamplesOfFrontend {
		return false
	}
	if c.of == nil {
		c.of = make(map[netip.AddrPort]int)
	}
	c.of[to]++
	c.all++
	return true
}

// Run judges samples until ctx ends. It sleeps while there are none.
func (s *Samples) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.more:
		}
		for s.judge(time.Now()) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(judging):
			}
		}
	}
}

// judge finds the outcomes of the samples that have waited long enough, and reports whether
// others wait.
func (s *Samples) judge(now time.Time) (others bool) {
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
		if s.Judged != nil {
			s.Judged(due[i].of.Endpoint, outcomes[i], due[i].at)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range outcomes {
		s.count(&due[i], outcomes[i])
	}
	return len(s.waiting) > 0
}

// ask asks the kernel, and logs the first of several errors in a row.
func (s *Samples) ask(connections []conntrack.Connection) []conntrack.Outcome {
	outcomes, err := s.outcomes(connections)
	if err != nil && !s.failed {
		s.log.Error("the outcome of connections is not known", "error", err)
	}
	s.failed = err != nil
	return outcomes
}

// due removes the samples that have waited long enough, and returns them.
func (s *Samples) due(now time.Time) []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.waiting) && now.Sub(s.waiting[n].at) >= patience {
		n++
	}
	due := s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil // give the memory back
	}
	return due
}

func (s *Samples) count(of *sample, o conntrack.Outcome) {
	s.totals.add(of.of.Port.Service, o)
	c := s.counts[of.of]
	if c == nil {
		s.forget(of.at)
		if len(s.counts) >= maxSamples {
			return
		}
		c = new(outcomeCounts)
		s.counts[of.of] = c
	}
	c.add(of.at, o)
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
}

func (c *outcomeCounts) add(at time.Time, o conntrack.Outcome) {
	number := at.UnixNano() / int64(partTime)
	p := &c.parts[number%parts]
	if p.number != number {
		p.number, p.counts = number, [conntrack.Outcomes]uint16{}
	}
	if p.counts[o] < ^uint16(0) {
		p.counts[o]++
	}
	if c.failed++; o == conntrack.Answered {
		c.failed = 0
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
