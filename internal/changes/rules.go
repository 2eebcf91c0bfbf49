package changes

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Rules compares two rulesets that differ by p. Names of Services come
// from comments of elements, which nft limits to 128 bytes: longer ones are cut.
// The objects behind the rules after the change, if they are known, say why an endpoint
// is left out.
func Rules(before, after *nft.Ruleset, p *plan.Plan, objects *model.Snapshot) []Service {
	c := newComparison()
	if objects != nil {
		c.stateAfter = newStateLookup(objects)
	}
	c.originOf(before, after, objects)
	for _, f := range model.Families {
		was, is := served.Read(before.Table(f)), served.Read(after.Table(f))
		all := touchedFrontends(f, p, before.Table(f), after.Table(f))
		if deletesTable(f, p) { // its elements are not listed
			for n := range was.Names() {
				all[n.Frontend] = struct{}{}
			}
		}
		for frontend := range all {
			c.add(pair{ofRules(was, frontend), ofRules(is, frontend)})
		}
		for name := range was.Names() {
			c.count(name.Port.Service, 1, 0)
		}
		for name := range is.Names() {
			c.count(name.Port.Service, 0, 1)
		}
	}
	return c.listServices()
}

// originOf notes what Services come from. Those without an object are gone: if the others are
// Balances, so was one whose addresses are all of load balancers.
func (c *comparison) originOf(before, after *nft.Ruleset, objects *model.Snapshot) {
	if objects == nil || objects.Words() == words.Kubernetes && len(objects.Services) > 0 {
		return
	}
	for _, rs := range []*nft.Ruleset{before, after} {
		for name, all := range served.OnlyLoadBalancers(rs) {
			c.isBalance[name] = all
		}
	}
	for _, s := range objects.Services {
		c.isBalance[s.Name] = s.Balance
	}
}

func deletesTable(f model.Family, p *plan.Plan) bool {
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
		return c.Verb == plan.Delete && c.Family == f && c.Kind() == "table"
	})
}

// touchedFrontends returns the frontends with a changed element. A range is found by its first port
// in the rules before and after the change, because its last one may differ.
func touchedFrontends(f model.Family, p *plan.Plan, sides ...*nft.Table) map[model.Frontend]struct{} {
	out := make(map[model.Frontend]struct{})
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Family != f || c.Kind() != "element" || !ofFrontend(c.Set) {
			continue
		}
		k := cmp.Or(c.New, c.Old).Key
		if !c.Set.HasRanges() {
			out[k.Frontend()] = struct{}{}
			continue
		}
		for _, r := range sides {
			if r != nil {
				out[r.FrontendOf(c.Set, k)] = struct{}{}
			}
		}
	}
	return out
}

// ofFrontend reports whether the keys of a set begin with a frontend.
func ofFrontend(s *nft.Set) bool {
	return len(s.Key) >= 3 && s.Key[0] == nft.Address && s.Key[1] == nft.InetProto && (s.Key[2] == nft.Port || s.HasRanges())
}
