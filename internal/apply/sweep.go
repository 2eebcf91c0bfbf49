package apply

import (
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// A binding to an endpoint that the frontend no longer has is harmless: the rules drop
// the client's next first packet and delete the binding (see render's affinityChains).
// A sweep deletes them early, so that no client loses its first packet. It works in the background: it reads at most
// [kernel.MaxBindings] bindings of a map, and deletes them in small transactions.

// departed are endpoints that frontends with affinity no longer have, except those that bind a client
// together: no packet follows a binding there to an endpoint that has left.
type departed map[departure]bool

// departure is an endpoint by the set that it was in, of endpoints to which clients may be
// bound, and its key there.
type departure struct {
	set string
	key nft.Key
}

func isEndpoints(set string) bool {
	return slices.ContainsFunc(nft.AffinityMaps, func(bindings string) bool {
		return bindings != nft.SharedAffinityMap && nft.EndpointsOf(bindings) == set
	})
}

func (d departed) recordPlan(p *plan.Plan) {
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Old != nil && isEndpoints(c.Set.Name) {
			d[departure{c.Set.Name, c.Old.Key}] = true
		}
	}
	d.comeBack(p)
}

func (d departed) comeBack(p *plan.Plan) {
	if len(d) == 0 { // also for the long first plan
		return
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.New != nil && isEndpoints(c.Set.Name) {
			delete(d, departure{c.Set.Name, c.New.Key})
		}
	}
}

func (d departed) leadsToDeparted(bindings string, e *nft.Element) bool {
	k := e.Key
	k.Source, k.Slot = e.Value.Endpoint.Addr(), uint32(e.Value.Endpoint.Port())
	return d[departure{nft.EndpointsOf(bindings), k}]
}

// Sweep releases the clients of endpoints that have departed.
type Sweep struct {
	kernel   Kernel
	wanted   departed // when it began
	departed departed // as it is now
	found    []clients
}

type clients struct {
	family model.Family
	set    *nft.Set
}

// Departed reports whether endpoints have departed since the last sweep began.
func (a *Applier) Departed() bool { return len(a.departed) > 0 }

// BeginSweep returns a sweep for the endpoints that departed since the last one.
func (a *Applier) BeginSweep() *Sweep {
	a.sweep = &Sweep{kernel: a.kernel, wanted: maps.Clone(a.departed), departed: a.departed}
	a.departed = make(departed)
	return a.sweep
}

// Read finds the clients to release. It may run concurrently with changes.
func (s *Sweep) Read() error {
	families := make(map[model.Family]bool)
	for k := range s.wanted {
		families[model.FamilyOf(k.key.Address)] = true
	}
	for _, f := range model.Families {
		if !families[f] {
			continue
		}
		sets, err := s.kernel.Bindings(f, kernel.MaxBindings)
		if err != nil {
			return err
		}
		for _, set := range sets {
			if stale := s.wanted.filterDeparted(set, set.Elements); len(stale.Elements) > 0 {
				s.found = append(s.found, clients{f, stale})
			}
		}
	}
	return nil
}

func (d departed) filterDeparted(m *nft.Set, elements []nft.Element) *nft.Set {
	out := *m
	out.Elements = nil
	for i := range elements {
		if d.leadsToDeparted(m.Name, &elements[i]) {
			out.Elements = append(out.Elements, elements[i])
		}
	}
	return &out
}

// sweepStep is how many clients one transaction releases. It takes less than
// a millisecond, for which a change may have to wait.
const sweepStep = 256

// Release deletes the bindings of some of the clients that were found, unless their
// endpoint came back. It reports whether there are more.
func (a *Applier) Release(s *Sweep) (more bool, err error) {
	if len(s.found) == 0 {
		return false, nil
	}
	c := &s.found[0]
	n := min(sweepStep, len(c.set.Elements))
	family, step := c.family, s.departed.filterDeparted(c.set, c.set.Elements[:n])
	if c.set.Elements = c.set.Elements[n:]; len(c.set.Elements) == 0 {
		s.found = s.found[1:]
	}
	if len(step.Elements) == 0 {
		return len(s.found) > 0, nil
	}
	start := time.Now()
	if err := a.kernel.Unbind(family, step); err != nil {
		return false, err
	}
	a.log.Debug("clients released", "clients", len(step.Elements), "duration", time.Since(start))
	return len(s.found) > 0, nil
}

// Sweep releases the clients of endpoints that departed. An error is harmless.
func (a *Applier) Sweep() error {
	if !a.Departed() {
		return nil
	}
	s := a.BeginSweep()
	if err := s.Read(); err != nil {
		return err
	}
	for {
		if more, err := a.Release(s); err != nil || !more {
			return err
		}
	}
}

// keepBindings adds to a plan the valid bindings of the tables that it replaces, as far as
// there is room for them. The rest of their timeout is unknown, so it starts again. If
// the bindings cannot be read, clients lose them.
func (a *Applier) keepBindings(p *plan.Plan, want *nft.Ruleset) {
	for _, f := range p.Rebuilt {
		before, err := a.kernel.Bindings(f, kernel.MaxBindings)
		if err != nil {
			a.log.Warn("session affinity starts again: its bindings cannot be read", "family", f, "error", err)
			continue
		}
		t := want.Table(f)
		for _, s := range before {
			p.Changes = append(p.Changes, keptBindings(t, s)...)
		}
	}
}

// keptBindings returns the bindings that stay. One to a server that has left leads nowhere where clients are
// bound together, and stays.
func keptBindings(t *nft.Table, before *nft.Set) (out []plan.Change) {
	after, endpoints := t.Set(before.Name), nft.EndpointsOf(before.Name)
	if after == nil || !after.Dynamic {
		return nil
	}
	valid, groups := make(departed), t.GroupTimeouts()
	for _, e := range t.Set(endpoints).Elements {
		valid[departure{endpoints, e.Key}] = true
	}
	for i := range before.Elements {
		e := &before.Elements[i]
		timeout, ok := groups[nft.Key{Address: e.Key.Address, Slot: e.Key.Slot}]
		if after.Name != nft.SharedAffinityMap {
			timeout, ok = t.AffinityTimeout(before.Name, e.Key.Frontend())
			ok = ok && valid.leadsToDeparted(before.Name, e)
		}
		if ok && len(out) < int(after.Size) {
			out = append(out, plan.Change{Verb: plan.Add, Family: t.Family, Set: after, New: e, Timeout: timeout})
		}
	}
	return out
}
