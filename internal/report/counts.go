package report

import (
	"log/slog"
	"sync"

	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
)

// counterCache has the counters of the kernel, and the counts that the kernel loses with the
// elements that it replaces. All pages and the metrics share it.
type counterCache struct {
	kernel  KernelReader
	routing func() *model.Routing // nil before the first successful sync
	counted bool                  // the rules count connections
	// countsRefusals means that the rules count refused connections.
	countsRefusals bool
	log            *slog.Logger

	reading   sync.Mutex // guards the kernel connection, counts, limits and refusals
	counts    counts
	limits    limitCounts // what limits have dropped
	unlimited limitCounts // connections of clients that limits had no room for
	begun     bool        // these were read once; only Observe uses it
	refusals  refusalCounts
	carried   carried
}

// counts sums up the kernel's counters. These are reset when the verdict of their
// frontend changes, for example with the number of endpoints. A sum over a service
// port would then fall, which looks like a restart; therefore their growth is
// summed, with the counts in [carried] of the ones that ended.
type counts struct {
	seen      map[counter]uint64 // in the kernel, at the last reading
	frontends map[model.FrontendID]uint64
	ports     map[Owner]uint64
	total     uint64 // of all frontends, also of those that are gone
}

type counter struct {
	model.FrontendID
	outside bool
}

// Owner is the unit over which counters are summed: the frontends of one kind and family of a service port.
type Owner struct {
	Port   model.PortName
	Family model.Family
	Kind   model.Kind
}

func ownerOf(r *model.Route) Owner {
	return Owner{r.PortName(), model.FamilyOf(r.Frontend.Address), r.Kind}
}

func newCounts() counts {
	return counts{frontends: make(map[model.FrontendID]uint64), ports: make(map[Owner]uint64)}
}

// add adds a reading, and removes frontends without a route. ended are the counts of
// elements that were replaced or deleted since the last reading.
func (c *counts) add(reading []counters.Frontend, ended map[counter]uint64, routes []model.Route) {
	owners := make(map[model.FrontendID]*model.Route, len(routes))
	frontends := make(map[model.FrontendID]uint64, len(routes))
	ports := make(map[Owner]uint64)
	for i := range routes {
		r := &routes[i]
		id := r.Frontend.ID()
		owners[id], frontends[id] = r, c.frontends[id]
		ports[ownerOf(r)] = c.ports[ownerOf(r)]
	}
	grow := func(key counter, now uint64) {
		n := growth(c.seen[key], now)
		c.total += n
		if r := owners[key.FrontendID]; r != nil {
			frontends[key.FrontendID] += n
			ports[ownerOf(r)] += n
		}
	}
	seen := make(map[counter]uint64, len(reading))
	for _, n := range reading {
		key := counter{n.Frontend, n.Outside}
		if owners[key.FrontendID] == nil {
			continue // the rules are changing
		}
		seen[key] = n.Connections
		grow(key, ended[key]+n.Connections)
	}
	for key, n := range ended {
		if _, ok := seen[key]; !ok {
			grow(key, n)
		}
	}
	c.seen, c.frontends, c.ports = seen, frontends, ports
}

// growth returns how much a counter has grown since the last reading. It may have been
// reset in between.
func growth(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// count updates the counts. The caller holds s.reading.
func (s *counterCache) count(routing *model.Routing) error {
	if !s.counted || routing == nil {
		return nil
	}
	reading, ended, err := s.readFrontends()
	if err != nil {
		return err
	}
	s.counts.add(reading, ended, routing.Routes)
	return nil
}

// readFrontends reads the counters of all frontends, and takes the carried counts of the ones
// that ended. Changes may end more in between, and are held up only if they never cease.
func (s *counterCache) readFrontends() (reading []counters.Frontend, ended map[counter]uint64, err error) {
	c := &s.carried
	c.mu.Lock()
	defer c.mu.Unlock()
	for attempt := 0; ; attempt++ {
		before := c.changes
		if attempt < readAttempts {
			c.mu.Unlock()
		}
		reading, err = s.kernel.FrontendCounts()
		if attempt < readAttempts {
			c.mu.Lock()
		}
		if err != nil {
			return nil, nil, err
		}
		if c.changes == before {
			ended, c.frontends = c.frontends, make(map[counter]uint64)
			return reading, ended, nil
		}
	}
}

// readAttempts is how often counters are read while changes go on.
const readAttempts = 3

// ServiceCounts returns the new connections to the service ports of the node; none without counters. They must not be
// changed. A number falls only when the daemon restarts, or the service port is deleted and created again.
func (s *counterCache) ServiceCounts() (map[Owner]uint64, error) {
	routing := s.routing()
	s.reading.Lock()
	defer s.reading.Unlock()
	err := s.count(routing)
	return s.counts.ports, err
}

// Connections are the numbers of new connections since the start of the daemon. They
// must not be changed.
type Connections struct {
	Total     uint64 // also to frontends that are gone; it never falls
	Frontends map[model.FrontendID]uint64
}

// Connections returns the agent's routing and, with counters, the connections to its
// frontends. The routing is nil before the first successful sync.
func (s *counterCache) Connections() (*model.Routing, Connections, error) {
	routing := s.routing()
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.count(routing); err != nil {
		return nil, Connections{}, err
	}
	return routing, Connections{s.counts.total, s.counts.frontends}, nil
}
