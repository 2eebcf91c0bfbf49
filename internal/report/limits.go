package report

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
)

// limitCounts sums up what limits have dropped, by service port. As with [counts], the
// kernel's counters may start again.
type limitCounts struct {
	seen  map[limitCounter]uint64 // in the kernel, at the last reading
	ports map[limitOwner]uint64
}

type limitCounter struct {
	frontend model.FrontendID
	limit    model.LimitKind
}

type limitOwner struct {
	owner
	limit model.LimitKind
}

// add adds a reading, and removes service ports without the limit.
func (c *limitCounts) add(reading []counters.Limit, routes []model.Route) {
	owners := make(map[model.FrontendID]owner)
	for i := range routes {
		if r := &routes[i]; r.Service.Extra().Limits != (model.Limits{}) {
			owners[r.Frontend.ID()] = ownerOf(r)
		}
	}
	seen, ports := make(map[limitCounter]uint64, len(reading)), make(map[limitOwner]uint64)
	for _, d := range reading {
		o, ok := owners[d.Frontend]
		if !ok {
			continue // the rules are changing
		}
		key, port := limitCounter{d.Frontend, d.Kind}, limitOwner{o, d.Kind}
		growth := growth(c.seen[key], d.Packets)
		seen[key] = d.Packets
		if _, ok := ports[port]; !ok {
			ports[port] = c.ports[port]
		}
		ports[port] += growth
	}
	c.seen, c.ports = seen, ports
}

// LimitCount is the number of new connections that a limit has dropped.
type LimitCount struct {
	Port    model.PortName
	Family  model.Family
	Kind    model.Kind // of the frontends
	Limit   model.LimitKind
	Dropped uint64
}

// LimitCounts returns the packets that limits of the service ports of the node have dropped,
// sorted.
func (s *counterCache) LimitCounts() ([]LimitCount, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	reading, err := s.kernel.LimitDrops()
	if err != nil {
		return nil, err
	}
	var routes []model.Route
	if len(reading) > 0 { // few nodes have any
		if routing := s.routing(); routing != nil {
			routes = routing.Routes
		}
	}
	s.limits.add(reading, routes)
	out := make([]LimitCount, 0, len(s.limits.ports))
	for k, n := range s.limits.ports {
		out = append(out, LimitCount{k.port, k.family, k.kind, k.limit, n})
	}
	slices.SortFunc(out, func(a, b LimitCount) int {
		return cmp.Or(a.Port.Compare(b.Port), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Limit, b.Limit))
	})
	return out, nil
}
