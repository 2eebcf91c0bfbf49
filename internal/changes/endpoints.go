package changes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

type portChange struct {
	pairs          []pair
	before, after  map[address]int // all endpoints, with their weights
	added, removed []address
	weights        map[address][2]int // that change, before and after
	affinity       bool
}

func (s *subject) describeEndpoints() (out []Detail) {
	ports := make(map[model.PortName]*portChange)
	for _, p := range s.stays {
		if slices.Equal(p.before.endpoints, p.after.endpoints) {
			continue
		}
		c := ports[p.after.Port]
		if c == nil {
			c = &portChange{before: make(map[address]int), after: make(map[address]int)}
			ports[p.after.Port] = c
		}
		c.add(p)
	}
	for _, port := range slices.SortedFunc(maps.Keys(ports), model.PortName.Compare) {
		c := ports[port]
		c.compare()
		prefix := s.portPrefix(port)
		details := s.describeExchange(port, c)
		if !s.edits.changed[s.name] { // else the edit of all endpoints describes them
			details = append(details, c.describeWeights()...)
		}
		for _, d := range details {
			d.Text = prefix + d.Text
			out = append(out, d)
		}
	}
	return out
}

func (c *portChange) add(p pair) {
	c.pairs = append(c.pairs, p)
	c.affinity = c.affinity || p.before.Affinity > 0 && p.after.Affinity > 0
	for _, e := range p.before.endpoints {
		c.before[e.address] = e.weight
	}
	for _, e := range p.after.endpoints {
		c.after[e.address] = e.weight
	}
}

func (c *portChange) compare() {
	c.weights = make(map[address][2]int)
	for a, weight := range c.before {
		if now, ok := c.after[a]; !ok {
			c.removed = append(c.removed, a)
		} else if now != weight {
			c.weights[a] = [2]int{weight, now}
		}
	}
	for a := range c.after {
		if _, ok := c.before[a]; !ok {
			c.added = append(c.added, a)
		}
	}
	slices.SortFunc(c.added, address.Compare)
	slices.SortFunc(c.removed, address.Compare)
}

// describeExchange describes endpoints that come and go: as replaced if their number stays.
// Endpoints that are only left out, or used again, are described by their condition.
func (s *subject) describeExchange(port model.PortName, c *portChange) (out []Detail) {
	gone, left := split(c.removed, func(a address) state { return s.stateAfter(port, a) })
	fresh, back := split(c.added, func(a address) state { return s.stateBefore(c.pairs[0].before.Port, a) })
	lost := s.describeLost(c.pairs, s.name)
	if c.affinity && len(c.removed) > 0 {
		lost += "; clients bound to it are balanced again"
	}
	out = s.exchangeDetails(gone, fresh, "", lost)
	note := func(text string, d Detail) {
		d.Kind, d.Text = KindEndpoints, s.in.Count(max(len(d.Added), len(d.Removed)), "endpoint")+" "+text
		out = append(out, d)
	}
	for _, group := range left {
		d := Detail{New: string(group.why), Removed: textsOf(group.endpoints), Connections: lost}
		if group.serving {
			d.Connections = "connections continue"
		}
		note(fmt.Sprintf("%s (%s)", group.why, joinFew(d.Removed)), d)
	}
	for _, group := range back {
		d := Detail{Old: string(group.why), Added: textsOf(group.endpoints)}
		note(fmt.Sprintf("used again (%s), before: %s", joinFew(d.Added), group.why), d)
	}
	return out
}

// exchangeDetails describes endpoints that come and go: as replaced if their number stays. why says why they
// take no connections, if they do not, and lost what happens to the connections of these that go.
func (s *subject) exchangeDetails(gone, fresh []address, why, lost string) (out []Detail) {
	note := func(verb string, list []string, d Detail) {
		d.Kind, d.Text = KindEndpoints, fmt.Sprintf("%s %s%s (%s)", s.in.Count(len(list), "endpoint"), verb, why, joinFew(list))
		out = append(out, d)
	}
	if len(gone) == len(fresh) && len(gone) > 0 {
		note("replaced", pairByAddress(gone, fresh), Detail{Added: textsOf(fresh), Removed: textsOf(gone), Connections: lost})
		return out
	}
	named := namedEndpoints
	if why != "" {
		named = func(list []address, _ model.ServiceState) []string { return textsOf(list) }
	}
	if len(fresh) > 0 {
		note("added", named(fresh, s.edits.after[s.name]), Detail{Added: textsOf(fresh)})
	}
	if len(gone) > 0 {
		note("removed", named(gone, s.edits.before[s.name]), Detail{Removed: textsOf(gone), Connections: lost})
	}
	return out
}

// pairByAddress returns the successor of each endpoint: the same address with another port, if
// there is one.
func pairByAddress(gone, fresh []address) []string {
	rest := slices.Clone(fresh)
	successor := make([]address, len(gone))
	for i, a := range gone {
		if j := slices.IndexFunc(rest, func(b address) bool { return b.Addr() == a.Addr() }); j >= 0 {
			successor[i] = rest[j]
			rest = slices.Delete(rest, j, j+1)
		}
	}
	out := make([]string, len(gone))
	for i, a := range gone {
		if !successor[i].IsValid() {
			successor[i], rest = rest[0], rest[1:]
		}
		out[i] = model.EndpointText(a) + " → " + model.EndpointText(successor[i])
	}
	return out
}

type group struct {
	state
	endpoints []address
}

// split separates the endpoints that are only left out, by their state.
func split(endpoints []address, stateOf func(address) state) (absent []address, present []group) {
	for _, a := range endpoints {
		now := stateOf(a)
		if now.why == "" {
			absent = append(absent, a)
			continue
		}
		i := slices.IndexFunc(present, func(g group) bool { return g.state == now })
		if i < 0 {
			i, present = len(present), append(present, group{state: now})
		}
		present[i].endpoints = append(present[i].endpoints, a)
	}
	return absent, present
}

// describeLost says whether connections to an endpoint that is gone continue, if the frontends now
// belong to a Service.
func (s *subject) describeLost(pairs []pair, owner model.ServiceName) string {
	var frontends []*frontend
	for _, p := range pairs {
		frontends = append(frontends, p.before)
	}
	tcp := s.in.Text("TCP connections stay with their endpoint")
	if s.edits.closesConnections(owner) {
		tcp = "TCP connections end"
	}
	return byProtocol(frontends, tcp, "UDP flows move to another one")
}

// describeWeights describes endpoints with other weights. A change of all weights by the same
// factor, as of numbers of slots, is none.
func (c *portChange) describeWeights() []Detail {
	var list []string
	for _, a := range slices.SortedFunc(maps.Keys(c.weights), address.Compare) {
		w := c.weights[a]
		list = append(list, fmt.Sprintf("%s: %d → %d", model.EndpointText(a), w[0], w[1]))
	}
	if len(list) == 0 || c.isProportional() {
		return nil
	}
	return []Detail{{Kind: KindWeights, Text: "weight of " + joinFew(list), Added: list}}
}

// isProportional reports whether the weights of all endpoints before and after have the
// same ratio.
func (c *portChange) isProportional() bool {
	if len(c.added)+len(c.removed) == 0 && len(c.weights) != len(c.before) {
		return false
	}
	first := [2]int{}
	for a, before := range c.before {
		now, ok := c.after[a]
		switch {
		case !ok:
		case first == [2]int{}:
			first = [2]int{before, now}
		case before*first[1] != now*first[0]:
			return false
		}
	}
	return true
}
