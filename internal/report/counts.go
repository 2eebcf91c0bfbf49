package report

import (
	"log/slog"
	"net/netip"
	"sync"

	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// counterCache has the counters of the kernel, and the counts that the kernel loses with the
// elements that it replaces. All pages and the metrics share it.
type counterCache struct {
	agent   Agent
	history history // of the agent's syncs
	kernel  KernelReader
	counted bool // the rules count connections
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

// routing returns the agent's routing; nil before the first successful sync.
func (s *counterCache) routing() *model.Routing {
	if _, good := s.history.state(); !good {
		return nil
	}
	return s.agent.Routing()
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

// carried are the counts of elements that the kernel does not have any more: it cannot
// replace the value of an element, and a new element counts from 0. Each count is read
// just before the transaction that ends it.
type carried struct {
	mu sync.Mutex // held while a transaction that ends counts is committed
	// changes is the number of these transactions.
	changes   int
	frontends map[counter]uint64 // since the counters were read last
	endpoints map[model.FrontendID]map[netip.AddrPort]uint64
	// size is the number of counts of endpoints, and kept what was left of them when those
	// that are gone were dropped last.
	size, kept int
	// gone are frontends that were deleted since the last sync. Their endpoints follow.
	gone map[model.FrontendID]bool
}

// spareCounts is how many counts of endpoints may be kept until the counts of endpoints that
// are gone are dropped.
const spareCounts = 10_000

func newCarried() carried {
	return carried{frontends: make(map[counter]uint64), endpoints: make(map[model.FrontendID]map[netip.AddrPort]uint64), gone: make(map[model.FrontendID]bool)}
}

// Committing reads the counts that a plan ends, with [counters.Reader.LastCounts], and adds them
// to the counts of the process if the plan is committed: see [apply.Observer].
func (s *counterCache) Committing(p *plan.Plan, read func(*plan.Plan) ([]counters.Element, error)) (committed func(error)) {
	refusals := s.endingRefusals(p)
	if !endsCounts(p) {
		return refusals
	}
	c := &s.carried
	c.mu.Lock()
	counts, err := read(p)
	if err != nil {
		s.log.Warn("connections of changed endpoints are not counted", "error", err)
	}
	return func(err error) {
		refusals(err)
		defer c.mu.Unlock()
		if err != nil {
			return
		}
		c.changes++
		c.add(counts)
		c.forget(p)
		if c.size > 2*c.kept+spareCounts {
			routing := s.routing()
			c.prune(routing)
		}
	}
}

func endsCounts(p *plan.Plan) bool {
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Old != nil && c.Set.CountsConnections() {
			return true
		}
	}
	return false
}

func (c *carried) add(counts []counters.Element) {
	for i := range counts {
		n := &counts[i]
		d := n.Set.FrontendID(n.Element.Key)
		switch {
		case n.Connections == 0:
		case n.Set.IsOfFrontends():
			key := counter{d, isOutside(n.Set)}
			if _, known := c.frontends[key]; known || len(c.frontends) < spareCounts {
				c.frontends[key] += n.Connections
			}
		case !c.gone[d]:
			if c.endpoints[d] == nil {
				c.endpoints[d] = make(map[netip.AddrPort]uint64)
			}
			e := n.Element.Value.Endpoint
			if _, known := c.endpoints[d][e]; !known {
				c.size++
			}
			c.endpoints[d][e] += n.Connections
		}
	}
}

func (c *carried) forget(p *plan.Plan) {
	for i := range p.Changes {
		if change := &p.Changes[i]; change.Verb == plan.Delete && change.Old != nil && change.Set.IsOfFrontends() && !isOutside(change.Set) {
			d := change.Set.FrontendID(change.Old.Key)
			c.gone[d] = true
			c.size -= len(c.endpoints[d])
			delete(c.endpoints, d)
		}
	}
}

func (c *carried) synced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.gone)
}

// prune drops the counts of endpoints that take no connections any more.
func (c *carried) prune(routing *model.Routing) {
	kept := make(map[model.FrontendID]map[netip.AddrPort]uint64)
	c.size = 0
	if routing != nil {
		for i := range routing.Routes {
			r := &routing.Routes[i]
			old := c.endpoints[r.Frontend.ID()]
			if len(old) == 0 {
				continue
			}
			left := make(map[netip.AddrPort]uint64)
			for _, endpoints := range [][]model.Endpoint{r.Choice.Cluster, r.Choice.Local, r.Choice.Serving} {
				for _, e := range endpoints {
					if n, ok := old[e.Address()]; ok {
						left[e.Address()] = n
					}
				}
			}
			kept[r.Frontend.ID()] = left
			c.size += len(left)
		}
	}
	c.endpoints, c.kept = kept, c.size
}

func isOutside(s *nft.Set) bool { return nft.RowOf(s.Name).Contents == nft.LocalServices }

// countsAtOnce is how many frontends are asked about while no change can be committed.
const countsAtOnce = 64

// EndpointCounts returns the connections that some frontends sent to their endpoints since
// the start of the process, and before it those that the kernel has counted; also to endpoints
// that are gone, for a while. It has several counts for an endpoint, and is empty where these
// are not counted.
func (s *counterCache) EndpointCounts(frontends []model.Frontend) ([]counters.Endpoint, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.endpointCounts(frontends)
}

func (s *counterCache) endpointCounts(frontends []model.Frontend) (out []counters.Endpoint, err error) {
	for len(frontends) > 0 && err == nil {
		some := frontends[:min(len(frontends), countsAtOnce)]
		frontends = frontends[len(some):]
		out, err = s.appendCounts(out, some)
	}
	return out, err
}

func (s *counterCache) appendCounts(out []counters.Endpoint, frontends []model.Frontend) ([]counters.Endpoint, error) {
	c := &s.carried
	c.mu.Lock()
	defer c.mu.Unlock()
	counts, err := s.kernel.EndpointCounts(frontends)
	if err != nil {
		return nil, err
	}
	out = append(out, counts...)
	for _, f := range frontends {
		for e, n := range c.endpoints[f.ID()] {
			out = append(out, counters.Endpoint{Frontend: f, Endpoint: e, Connections: n})
		}
	}
	return out, nil
}
