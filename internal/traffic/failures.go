package traffic

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
)

// An endpoint fails if so many samples in a row were not answered; the lower number is enough if
// no other sample of the last minute was. One answer ends that.
const (
	failuresInRow  = 5
	fewestFailures = 3
)

// Failure is what endpoints that fail in the same way have in common: they serve the same
// service ports.
type Failure struct {
	Outcome   conntrack.Outcome // most samples have this one: refused or unanswered
	Endpoints []netip.AddrPort  // sorted
	Ports     []model.PortName  // sorted
	// Samples are all of the last minute, and Failed those that were not answered.
	Samples, Failed int
}

// Failures returns the endpoints that fail, and what they fail for, in a stable order.
func (s *Samples) Failures(now time.Time) []Failure {
	var out []Failure
	for endpoint, f := range s.failing(now) {
		slices.SortFunc(f.Ports, model.PortName.Compare)
		f.Endpoints = []netip.AddrPort{endpoint}
		same := func(o Failure) bool { return o.Outcome == f.Outcome && slices.Equal(o.Ports, f.Ports) }
		if i := slices.IndexFunc(out, same); i >= 0 {
			o := &out[i]
			o.Endpoints, o.Samples, o.Failed = append(o.Endpoints, endpoint), o.Samples+f.Samples, o.Failed+f.Failed
			continue
		}
		out = append(out, *f)
	}
	for i := range out {
		slices.SortFunc(out[i].Endpoints, netip.AddrPort.Compare)
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(a.Ports[0].Compare(b.Ports[0]), a.Endpoints[0].Compare(b.Endpoints[0]))
	})
	return out
}

// failing returns the endpoints that fail, each for the service ports of which that is so.
func (s *Samples) failing(now time.Time) map[netip.AddrPort]*Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[netip.AddrPort]*Failure)
	for of, c := range s.counts {
		counts, all := c.sum(now)
		failed := all - counts[conntrack.Answered]
		if failed < fewestFailures || c.failed < min(failuresInRow, all) {
			continue
		}
		f := out[of.Endpoint]
		if f == nil {
			f = &Failure{Outcome: conntrack.Refused}
			out[of.Endpoint] = f
		}
		if counts[conntrack.Unanswered] > counts[conntrack.Refused] {
			f.Outcome = conntrack.Unanswered
		}
		f.Ports, f.Samples, f.Failed = append(f.Ports, of.Port), f.Samples+all, f.Failed+failed
	}
	return out
}
