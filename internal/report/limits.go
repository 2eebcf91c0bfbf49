package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// limitCounts sums up what limits have dropped, or had no room for, by service port. As with [counts], the
// kernel's counters may start again.
type limitCounts struct {
	seen  map[limitCounter]uint64 // in the kernel, at the last reading; nil: there was none
	ports map[LimitOwner]uint64
	grown map[LimitOwner]time.Time // the reading that last found a higher count than the one before
}

type limitCounter struct {
	frontend model.FrontendID
	limit    model.LimitKind
}

// LimitOwner is a limit of the frontends of one kind and family of a service port.
type LimitOwner struct {
	Owner
	Limit model.LimitKind
}

// add adds a reading, and removes service ports without the limit.
func (c *limitCounts) add(reading []counters.Limit, routes []model.Route, now time.Time) {
	owners := make(map[model.FrontendID]Owner)
	for i := range routes {
		if r := &routes[i]; r.Service.Extra().Limits != (model.Limits{}) {
			owners[r.Frontend.ID()] = ownerOf(r)
		}
	}
	seen, ports, grown := make(map[limitCounter]uint64, len(reading)), make(map[LimitOwner]uint64), make(map[LimitOwner]time.Time)
	for _, d := range reading {
		o, ok := owners[d.Frontend]
		if !ok {
			continue // the rules are changing
		}
		key, port := limitCounter{d.Frontend, d.Kind}, LimitOwner{o, d.Kind}
		growth := growth(c.seen[key], d.Packets)
		seen[key] = d.Packets
		if _, ok := ports[port]; !ok {
			ports[port] = c.ports[port]
		}
		ports[port] += growth
		if at, ok := c.grown[port]; ok {
			grown[port] = at
		}
		if growth > 0 && c.seen != nil { // else it may have grown before the start of the process
			grown[port] = now
		}
	}
	c.seen, c.ports, c.grown = seen, ports, grown
}

// read adds what a reader returns. s.reading is locked.
func (c *limitCounts) read(s *counterCache, read func() ([]counters.Limit, error), now time.Time) error {
	reading, err := read()
	if err != nil {
		return err
	}
	var routes []model.Route
	if len(reading) > 0 { // few nodes have any
		if routing := s.routing(); routing != nil {
			routes = routing.Routes
		}
	}
	c.add(reading, routes, now)
	return nil
}

// beginLimits reads what limits had no room for before this process watched them, and reports whether it is known.
func (s *counterCache) beginLimits() bool {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.unlimited.seen != nil || s.unlimited.read(s, s.kernel.Unlimited, time.Now()) == nil
}

// LimitCounts returns the packets that limits of the service ports of the node have dropped. They must not be changed.
func (s *counterCache) LimitCounts() (map[LimitOwner]uint64, error) {
	return s.limitCounts(&s.limits, s.kernel.LimitDrops)
}

// UnlimitedCounts returns the packets of clients that limits of clients had no room for. They must not be changed.
func (s *counterCache) UnlimitedCounts() (map[LimitOwner]uint64, error) {
	return s.limitCounts(&s.unlimited, s.kernel.Unlimited)
}

func (s *counterCache) limitCounts(c *limitCounts, read func() ([]counters.Limit, error)) (map[LimitOwner]uint64, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	err := c.read(s, read, time.Now())
	return c.ports, err
}

// fullTime is how long a limit without room for a client remains a problem.
const fullTime = 10 * time.Minute

// addFullLimits reads which limits of clients had no room for some, and adds a problem for each Service, limit and family.
// s.reading is locked.
func (s *counterCache) addFullLimits(r *report, now time.Time) error {
	if err := s.unlimited.read(s, s.kernel.Unlimited, now); err != nil {
		return err
	}
	type full struct {
		service model.ServiceName
		limit   model.LimitKind
		family  model.Family
	}
	passed := make(map[full]uint64)
	for o, at := range s.unlimited.grown {
		if now.Sub(at) < fullTime {
			passed[full{o.Port.Service, o.Limit, o.Family}] += s.unlimited.ports[o]
		}
	}
	for _, f := range slices.SortedFunc(maps.Keys(passed), func(a, b full) int {
		return cmp.Or(a.service.Compare(b.service), cmp.Compare(a.limit, b.limit), cmp.Compare(a.family, b.family))
	}) {
		r.addProblem(f.service, model.LimitFull, fmt.Sprintf("the limit %s remembers %d clients over %s; %s of others passed without it",
			f.limit, budget.LimitedClients, f.family, terminal.Count(int(passed[f]), "connection")))
	}
	return nil
}
