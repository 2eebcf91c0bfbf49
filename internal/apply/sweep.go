package apply

import (
	"maps"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// A binding of a client to an endpoint that its frontend no longer has does no
// harm: the rules drop the first packet that comes with it and release the client
// (see render's affinityChains). A sweep releases such clients before they send
// one. It is work in the background: it reads at most [maxBindings] bindings of a
// map, and deletes them in small transactions of their own.

// departed are endpoints that frontends with affinity no longer have, by their
// keys in affinity-endpoints.
type departed map[nft.Key]bool

// note follows a plan that was carried out.
func (d departed) note(p *plan.Plan) {
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Set == nil || c.Set.Name != nft.AffinityEndpointsSet {
			continue
		}
		if c.Old != nil {
			d[c.Old.Key] = true
		}
	}
	d.comeBack(p)
}

// comeBack removes the endpoints that a plan adds.
func (d departed) comeBack(p *plan.Plan) {
	if len(d) == 0 { // as at the start, when a plan is long
		return
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.New != nil && c.Set.Name == nft.AffinityEndpointsSet {
			delete(d, c.New.Key)
		}
	}
}

// has reports whether a binding leads to an endpoint that departed.
func (d departed) has(e *nft.Element) bool {
	k := e.Key
	k.Source, k.Slot = e.Value.Endpoint.Addr(), uint32(e.Value.Endpoint.Port())
	return d[k]
}

// Sweep releases the clients of endpoints that have departed.
type Sweep struct {
	kernel   Kernel
	wanted   departed // when it began
	departed departed // as it is now
	found    []clients
}

// clients are bindings in one map.
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

// Read finds the clients to release. It may run beside changes.
func (s *Sweep) Read() error {
	families := make(map[model.Family]bool)
	for k := range s.wanted {
		families[model.FamilyOf(k.Address)] = true
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
			stale := *set
			stale.Elements = nil
			for i := range set.Elements {
				if e := &set.Elements[i]; s.wanted.has(e) {
					stale.Elements = append(stale.Elements, *e)
				}
			}
			if len(stale.Elements) > 0 {
				s.found = append(s.found, clients{f, &stale})
			}
		}
	}
	return nil
}

// sweepStep is how many clients one transaction releases: it takes less than a
// millisecond, which is what a change may have to wait.
const sweepStep = 256

// Release deletes the bindings of some of the clients that were found, of those
// whose endpoint has not come back since. It returns false when none are left.
func (a *Applier) Release(s *Sweep) (more bool, err error) {
	if len(s.found) == 0 {
		return false, nil
	}
	c := &s.found[0]
	n := min(sweepStep, len(c.set.Elements))
	step := *c.set
	step.Elements = nil
	for i := range c.set.Elements[:n] {
		if e := &c.set.Elements[i]; s.departed.has(e) {
			step.Elements = append(step.Elements, *e)
		}
	}
	if c.set.Elements = c.set.Elements[n:]; len(c.set.Elements) == 0 {
		s.found = s.found[1:]
	}
	if len(step.Elements) == 0 {
		return len(s.found) > 0, nil
	}
	start := time.Now()
	if err := a.kernel.Unbind(c.family, &step); err != nil {
		return false, err
	}
	a.log.Debug("clients released", "clients", len(step.Elements), "duration", time.Since(start))
	return len(s.found) > 0, nil
}

// Sweep releases the clients of endpoints that departed with what was applied. An
// error does no harm.
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

// keep adds to a plan the bindings of the tables that it makes anew, as far as
// they hold and there is room for them. How much of their time is left is not
// known: it starts again. Where the bindings cannot be read, clients are bound
// again, which is no reason not to serve them.
func (a *Applier) keep(p *plan.Plan, want *nft.Ruleset) {
	for _, f := range p.Rebuilt {
		before, err := a.kernel.Bindings(f, kernel.MaxBindings)
		if err != nil {
			a.log.Warn("session affinity starts again: what it remembers cannot be read", "family", f, "error", err)
			continue
		}
		t := want.Table(f)
		for _, s := range before {
			p.Changes = append(p.Changes, keptBindings(t, s)...)
		}
	}
}

// keptBindings returns the bindings in a map that hold in a table, as additions.
func keptBindings(t *nft.Table, before *nft.Set) []plan.Change {
	after := t.Set(before.Name)
	if after == nil || !after.Dynamic {
		return nil
	}
	valid := make(departed)
	for _, e := range t.Set(nft.AffinityEndpointsSet).Elements {
		valid[e.Key] = true
	}
	var out []plan.Change
	for i := range before.Elements {
		e := &before.Elements[i]
		timeout, ok := t.AffinityTimeout(before.Name, e.Key.Frontend())
		if ok && valid.has(e) && len(out) < int(after.Size) {
			out = append(out, plan.Change{Verb: plan.Add, Family: t.Family, Set: after, New: e, Timeout: timeout})
		}
	}
	return out
}
