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
// service ports. Connections that do not reach an endpoint are a failure of their service port.
type Failure struct {
	Outcome   conntrack.Outcome // most samples have this one: refused, unanswered or dropped
	Endpoints []netip.AddrPort  // sorted; none: the connections were dropped
	Ports     []model.PortName  // sorted
	Families  []model.Family    // of the connections, sorted
	// Clients has the only client whose connections failed, which may be the cause, of each family; nil: those of
	// several clients did.
	Clients []netip.Prefix
	// Samples are all of the last minute, and Failed those that were not answered.
	Samples, Failed int
}

// Failures returns the endpoints and service ports that fail, in a stable order.
func (s *Samples) Failures(now time.Time) []Failure {
	var out []Failure
	for endpoint, f := range s.failing(now) {
		slices.SortFunc(f.Ports, model.PortName.Compare)
		f.Families = []model.Family{model.FamilyOf(endpoint.Endpoint.Addr())}
		if f.Outcome != conntrack.Dropped {
			f.Endpoints = []netip.AddrPort{endpoint.Endpoint}
		}
		same := func(o Failure) bool {
			return o.Outcome == f.Outcome && slices.Equal(o.Ports, f.Ports) && o.OneClient() == f.OneClient() && !o.otherClients(f)
		}
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].join(f)
			continue
		}
		out = append(out, *f)
	}
	for i := range out {
		slices.SortFunc(out[i].Endpoints, netip.AddrPort.Compare)
		slices.Sort(out[i].Families)
		out[i].Families = slices.Compact(out[i].Families)
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(a.Ports[0].Compare(b.Ports[0]), cmp.Compare(a.Outcome, b.Outcome), slices.CompareFunc(a.Endpoints, b.Endpoints, netip.AddrPort.Compare))
	})
	return out
}

// OneClient reports whether the connections of one client failed alone, in each family.
func (f *Failure) OneClient() bool { return len(f.Clients) > 0 }

// otherClients reports whether a family has one client here, and another one there.
func (f *Failure) otherClients(o *Failure) bool {
	return slices.ContainsFunc(o.Clients, func(c netip.Prefix) bool {
		return slices.ContainsFunc(f.Clients, func(own netip.Prefix) bool { return own != c && own.Addr().Is4() == c.Addr().Is4() })
	})
}

func (f *Failure) join(o *Failure) {
	for _, c := range o.Clients {
		if !slices.Contains(f.Clients, c) {
			f.Clients = append(f.Clients, c)
		}
	}
	f.Endpoints, f.Families = append(f.Endpoints, o.Endpoints...), append(f.Families, o.Families...)
	f.Samples, f.Failed = f.Samples+o.Samples, f.Failed+o.Failed
}

// failing returns the endpoints that fail, each for the service ports of which that is so, and
// the service ports whose connections do not reach one.
func (s *Samples) failing(now time.Time) map[served]*Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[served]*Failure)
	for of, c := range s.counts {
		counts, all := c.sum(now)
		failed := all - counts[conntrack.Answered]
		if failed < fewestFailures || c.failed < min(failuresInRow, all) {
			continue
		}
		key, outcome := of, conntrack.Dropped
		if !of.Endpoint.Addr().IsUnspecified() {
			key.Port, outcome = model.PortName{}, conntrack.Refused
		}
		f := out[key]
		if f == nil {
			f = &Failure{Outcome: outcome}
			if c.client.IsValid() {
				f.Clients = []netip.Prefix{c.client}
			}
			out[key] = f
		}
		if !slices.Contains(f.Clients, c.client) {
			f.Clients = nil
		}
		if counts[conntrack.Unanswered] > counts[conntrack.Refused] {
			f.Outcome = conntrack.Unanswered
		}
		f.Ports, f.Samples, f.Failed = append(f.Ports, of.Port), f.Samples+all, f.Failed+failed
	}
	return out
}
