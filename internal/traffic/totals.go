package traffic

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
)

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
