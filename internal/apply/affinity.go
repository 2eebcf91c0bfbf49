package apply

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// staleBindings returns the deletion of those bindings of clients to endpoints
// that must not be honoured any longer: the frontend has no affinity any more
// (5.10), or the endpoint has left those that its clients may reach (5.6). A
// binding does not tell where its client is, inside of the cluster or outside,
// so leaving either of the two is enough (5.5).
func staleBindings(cur, want *render.Table, bindings *render.Set) []Change {
	v := bindingCheck{sticky: stickySets(want), before: newReach(cur), after: newReach(want)}
	var out []Change
	for i := range bindings.Elements {
		if e := &bindings.Elements[i]; !v.valid(e) {
			out = append(out, Change{Verb: Delete, Family: want.Family, Set: bindings, Old: e})
		}
	}
	return out
}

// keptBindings returns the bindings of cur that are to be honoured in want, as
// additions. How much of their time is left is not known: it starts anew.
func keptBindings(cur, want *render.Table) []Change {
	before, after := cur.Set(render.AffinityMap), want.Set(render.AffinityMap)
	if before == nil || after == nil {
		return nil
	}
	v := bindingCheck{sticky: stickySets(want), before: newReach(cur), after: newReach(want)}
	timeouts := affinityTimeouts(want)
	var out []Change
	for i := range before.Elements {
		e := &before.Elements[i]
		if !v.valid(e) {
			continue
		}
		s := v.sticky[slices.IndexFunc(v.sticky, func(s *render.Set) bool { return contains(s, e.Key.Frontend()) })]
		out = append(out, Change{Verb: Add, Family: want.Family, Set: after, New: e, Timeout: timeouts[s.Name]})
	}
	return out
}

// affinityTimeouts returns for each set of frontends with affinity how long
// these remember a client.
func affinityTimeouts(t *render.Table) map[string]time.Duration {
	out := make(map[string]time.Duration)
	for _, r := range t.Chain(render.RememberChain).Rules {
		var set string
		for _, s := range r {
			switch s := s.(type) {
			case render.InSet:
				set = s.Set
			case render.Remember:
				out[set] = s.Timeout
			}
		}
	}
	return out
}

// stickySets returns the sets of frontends with affinity.
func stickySets(t *render.Table) []*render.Set {
	var out []*render.Set
	for _, r := range t.Chain(render.RememberChain).Rules {
		for _, s := range r {
			if in, ok := s.(render.InSet); ok {
				out = append(out, t.Set(in.Set))
			}
		}
	}
	return out
}

type bindingCheck struct {
	sticky        []*render.Set
	before, after *reach
}

func (v *bindingCheck) valid(e *render.Element) bool {
	f, endpoint := e.Key.Frontend(), e.Value.Endpoint
	if !slices.ContainsFunc(v.sticky, func(s *render.Set) bool { return contains(s, f) }) {
		return false
	}
	inside, outside := v.after.of(f, endpoint)
	wasInside, wasOutside := v.before.of(f, endpoint)
	left := wasInside && !inside || wasOutside && !outside
	return (inside || outside) && !left
}

// reach tells which endpoints the clients of a frontend can get.
type reach struct {
	lanes     *Lanes
	endpoints *render.Set
}

func newReach(t *render.Table) *reach {
	return &reach{NewLanes(t), t.Set(render.EndpointsMap)}
}

// of tells whether clients inside of the cluster, and those outside, can get an
// endpoint. Where frontends make no difference, both can or none.
func (r *reach) of(f model.Frontend, endpoint netip.AddrPort) (inside, outside bool) {
	in, ok := r.lanes.Of(render.ServicesMap, f)
	if !ok || r.endpoints == nil {
		return false, false
	}
	out, differs := r.lanes.Of(render.LocalServicesMap, f)
	if !differs {
		out = in
	}
	for _, slot := range slotsOf(r.endpoints, f, endpoint) {
		inside = inside || in.Has(slot)
		outside = outside || out.Has(slot)
	}
	return inside, outside
}

func contains(s *render.Set, f model.Frontend) bool {
	if s == nil {
		return false
	}
	_, ok := s.Find(f)
	return ok
}

// slotsOf returns the slots of a frontend that hold an endpoint.
func slotsOf(s *render.Set, f model.Frontend, endpoint netip.AddrPort) []uint32 {
	first := render.Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port}
	i, _ := slices.BinarySearchFunc(s.Elements, first, func(e render.Element, k render.Key) int { return e.Key.Compare(k) })
	var out []uint32
	for ; i < len(s.Elements) && s.Elements[i].Key.Frontend() == f; i++ {
		if s.Elements[i].Value.Endpoint == endpoint {
			out = append(out, s.Elements[i].Key.Slot)
		}
	}
	return out
}
