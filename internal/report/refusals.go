package report

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
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

// addRefusals adds the connections to a Service that the rules have refused, by reason.
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
