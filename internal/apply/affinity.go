package apply

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// staleBindings returns the deletion of those bindings of clients to endpoints
// that must not be honoured any longer (5.6, 5.10): the frontend has no
// affinity any more, or the endpoint is not among those of the frontend. A
// frontend that from now on treats clients outside of the cluster apart loses
// all of them (5.5), because a binding does not tell where its client is.
func staleBindings(cur, want *render.Table, bindings *render.Set) []Change {
	v := newBindingCheck(cur, want)
	var out []Change
	for i := range bindings.Elements {
		if e := &bindings.Elements[i]; !v.valid(e) {
			out = append(out, Change{Verb: Delete, Family: want.Family, Set: bindings, Old: e})
		}
	}
	return out
}

type bindingCheck struct {
	sticky    []*render.Set // frontends with affinity
	endpoints *render.Set
	before    *render.Set // local-services, as they were
	after     *render.Set
}

func newBindingCheck(cur, want *render.Table) *bindingCheck {
	v := &bindingCheck{
		endpoints: want.Set("endpoints"),
		before:    cur.Set("local-services"),
		after:     want.Set("local-services"),
	}
	for _, c := range want.Chain("remember").Rules {
		for _, s := range c {
			if in, ok := s.(render.InSet); ok && !slices.Contains(v.sticky, want.Set(in.Set)) {
				v.sticky = append(v.sticky, want.Set(in.Set))
			}
		}
	}
	return v
}

func (v *bindingCheck) valid(e *render.Element) bool {
	f := e.Key.Frontend()
	return v.hasAffinity(f) && !v.becomesLocal(f) && hasEndpoint(v.endpoints, f, e.Value.Endpoint)
}

func (v *bindingCheck) hasAffinity(f model.Frontend) bool {
	return slices.ContainsFunc(v.sticky, func(s *render.Set) bool { return contains(s, f) })
}

func (v *bindingCheck) becomesLocal(f model.Frontend) bool {
	return contains(v.after, f) && !contains(v.before, f)
}

func contains(s *render.Set, f model.Frontend) bool {
	if s == nil {
		return false
	}
	_, ok := s.Find(f)
	return ok
}

// hasEndpoint tells whether a slot of the frontend holds the endpoint.
func hasEndpoint(s *render.Set, f model.Frontend, endpoint netip.AddrPort) bool {
	first := render.Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port}
	i, _ := slices.BinarySearchFunc(s.Elements, first, func(e render.Element, k render.Key) int { return e.Key.Compare(k) })
	for ; i < len(s.Elements) && s.Elements[i].Key.Frontend() == f; i++ {
		if s.Elements[i].Value.Endpoint == endpoint {
			return true
		}
	}
	return false
}
