package report

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// refusalCounts sums up refused connections by reason and Service. As with [counts], the
// kernel's counters may start again.
type refusalCounts struct {
	seen map[refusalCounter]uint64 // in the kernel, at the last reading
	sums map[RefusalOwner]uint64
}

type refusalCounter struct {
	reason  model.RefusalReason
	dialled model.FrontendID
}

// RefusalOwner is a reason and a Service; without a name: connections to no Service, or to one
// of those beyond the budget.
type RefusalOwner struct {
	Reason  model.RefusalReason
	Service model.ServiceName
}

// dialledServices finds the Service that clients dialled.
type dialledServices struct {
	frontends map[model.FrontendID]model.ServiceName
	// addresses has the first Service of an address, as several may share one.
	addresses map[netip.Addr]model.ServiceName
	wildcards bool
}

func newDialledServices(r *model.Routing) *dialledServices {
	o := &dialledServices{make(map[model.FrontendID]model.ServiceName, len(r.Routes)), make(map[netip.Addr]model.ServiceName), r.Wildcards}
	for i := range r.Routes {
		route := &r.Routes[i]
		name := route.Service.Name
		o.frontends[route.Frontend.ID()] = name
		a := route.Frontend.Address
		if first, known := o.addresses[a]; !known || name.Compare(first) < 0 {
			o.addresses[a] = name
		}
	}
	return o
}

// of returns the Service of a counter; false: its frontend is gone, or it has none.
func (o *dialledServices) of(n *counters.Refusal) (name model.ServiceName, ok bool) {
	switch model.Refusals[n.Reason].CountedBy {
	case model.ByAddress:
		name, ok = o.addresses[n.Dialled.Address]
	case model.ByFrontend:
		name, ok = o.frontends[n.Dialled]
		if !ok && o.wildcards { // a NodePort, counted by the address that the client dialled
			n := n.Dialled
			n.Address = model.Wildcard(model.FamilyOf(n.Address))
			name, ok = o.frontends[n]
		}
	}
	return name, ok
}

// add adds a reading. Counts of Services that are gone end.
func (c *refusalCounts) add(reading []counters.Refusal, owners *dialledServices) {
	if c.sums == nil {
		c.sums = make(map[RefusalOwner]uint64)
	}
	services := make(map[model.ServiceName]bool)
	for _, name := range owners.frontends {
		services[name] = true
	}
	for o := range c.sums {
		if o.Service != (model.ServiceName{}) && !services[o.Service] {
			delete(c.sums, o)
		}
	}
	seen := make(map[refusalCounter]uint64, len(reading))
	for i := range reading {
		n := &reading[i]
		key := refusalCounter{n.Reason, n.Dialled}
		seen[key] = n.Packets
		growth := growth(c.seen[key], n.Packets)
		name, ok := owners.of(n)
		if !ok && model.Refusals[n.Reason].CountedBy != model.ByProtocol || growth == 0 {
			continue
		}
		owner := RefusalOwner{n.Reason, name}
		if _, known := c.sums[owner]; !known && len(c.sums) >= budget.RefusalSeries {
			owner.Service = model.ServiceName{}
		}
		c.sums[owner] += growth
	}
	c.seen = seen
}

// forget drops what was seen of the counters that a plan has deleted: new ones start at 0.
func (c *refusalCounts) forget(p *plan.Plan) {
	for i := range p.Changes {
		change := &p.Changes[i]
		if !endsRefusals(change) {
			continue
		}
		for key := range c.seen {
			if model.FamilyOf(key.dialled.Address) == change.Family &&
				(change.Set == nil || change.Set.Name == nft.RefusalOf(key.reason, shapeOf(key.dialled))) {
				delete(c.seen, key)
			}
		}
	}
}

func shapeOf(dialled model.FrontendID) nft.Shape {
	if dialled.Range {
		return nft.OfRange
	}
	return nft.OfPort
}

// endsRefusals reports whether a change deletes counters of refused connections: a set or
// a table.
func endsRefusals(c *plan.Change) bool {
	return c.Verb == plan.Delete && c.New == nil && c.Old == nil &&
		(c.Kind() == "table" || c.Set != nil && nft.RowOf(c.Set.Name).Contents == nft.Refusals)
}

// RefusalCounts returns the connections that the rules have refused; none where these are not observed.
func (s *counterCache) RefusalCounts() (map[RefusalOwner]uint64, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	err := s.countRefusals()
	return maps.Clone(s.refusals.sums), err
}

// countRefusals updates the counts. The caller holds s.reading.
func (s *counterCache) countRefusals() error {
	if !s.countsRefusals {
		return nil
	}
	reading, err := s.kernel.Refusals()
	if err != nil || len(reading)+len(s.refusals.sums) == 0 {
		return err
	}
	if routing := s.routing(); routing != nil {
		s.refusals.add(reading, newDialledServices(routing))
	}
	return nil
}

// refused returns the connections that were refused, by reason; nil: they are not observed. The
// caller holds s.reading.
func (s *counterCache) refused() (map[string]uint64, error) {
	if !s.countsRefusals {
		return nil, nil
	}
	if err := s.countRefusals(); err != nil {
		return nil, err
	}
	var out map[string]uint64
	if len(s.refusals.sums) > 0 {
		out = make(map[string]uint64)
	}
	for o, n := range s.refusals.sums {
		out[o.Reason.String()] += n
	}
	return out, nil
}

// endingRefusals counts what a plan ends, and returns a function that is called after it, with
// its error.
func (s *counterCache) endingRefusals(p *plan.Plan) (committed func(error)) {
	ends := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return endsRefusals(&c) })
	if !s.countsRefusals || !ends {
		return func(error) {}
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.countRefusals(); err != nil {
		s.log.Warn("refused connections are not counted", "error", err)
	}
	return func(err error) {
		s.reading.Lock()
		defer s.reading.Unlock()
		if err == nil {
			s.refusals.forget(p)
		}
	}
}

// GoneRefusals reports whether the frontend, or the address, of a counter is gone.
func GoneRefusals(r *model.Routing) func(*counters.Refusal) bool {
	owners := newDialledServices(r)
	return func(n *counters.Refusal) bool {
		_, ok := owners.of(n)
		return !ok && model.Refusals[n.Reason].CountedBy != model.ByProtocol
	}
}

func addRefusals(s *api.Description, read func() ([]counters.Refusal, error)) error {
	all, err := read()
	if err != nil {
		return err
	}
	name := model.ServiceName{Namespace: s.Namespace, Name: s.Name}
	owners := &dialledServices{make(map[model.FrontendID]model.ServiceName), make(map[netip.Addr]model.ServiceName), true}
	for p, f := range own(s) {
		key := p.Frontend(f)
		owners.frontends[key.ID()], owners.addresses[key.Address] = name, name
	}
	s.Refused = make(map[string]uint64)
	for i := range all {
		if _, ok := owners.of(&all[i]); ok && all[i].Packets > 0 {
			s.Refused[all[i].Reason.String()] += all[i].Packets
		}
	}
	return nil
}

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
		r.addServiceProblem(f.service, model.LimitFull, fmt.Sprintf("the limit %s remembers %d clients over %s; %s of others passed without it",
			f.limit, budget.LimitedClients, f.family, terminal.Count(int(passed[f]), "connection")))
	}
	return nil
}
