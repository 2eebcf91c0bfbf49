package changes

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// edits are changes of objects that the rules of this node do not show: settings that no rule
// has, and endpoints that take no connections now.
type edits struct {
	before, after         map[model.ServiceName]model.ServiceState
	changed               map[model.ServiceName]bool // those in both that are not the same
	nodeBefore, nodeAfter *model.Node                // this one
	// usedBefore and usedAfter are the endpoints that take connections, of the ports of
	// changed Services.
	usedBefore, usedAfter usage
}

type usage map[model.ServiceName]map[model.PortName]map[address]bool

func (u usage) usedBy(port model.PortName) map[address]bool {
	ports := u[port.Service]
	if ports == nil {
		ports = make(map[model.PortName]map[address]bool)
		u[port.Service] = ports
	}
	if ports[port] == nil {
		ports[port] = make(map[address]bool)
	}
	return ports[port]
}

func newEdits(before, after *model.Snapshot) *edits {
	e := &edits{
		before: before.Update().Services, after: after.Update().Services, changed: make(map[model.ServiceName]bool),
		usedBefore: make(usage), usedAfter: make(usage),
	}
	for name, was := range e.before {
		if is, ok := e.after[name]; ok && !reflect.DeepEqual(was, is) {
			e.changed[name] = true
		}
	}
	return e
}

func (e *edits) noteUse(c model.RouteChange) {
	note := func(r *model.Route, u usage) {
		if r == nil || !e.changed[r.Service.Name] {
			return
		}
		used := u.usedBy(r.PortName())
		for _, d := range []model.Decision{r.Inside(), r.Outside()} {
			for _, endpoint := range d.Endpoints {
				used[endpoint.Address()] = true
			}
		}
	}
	note(c.Old, e.usedBefore)
	note(c.New, e.usedAfter)
}

// describeLone returns the Services without a frontend on either side that come, go or change.
func (c *comparison) describeLone() (out []Service) {
	e := c.edits
	note := func(name model.ServiceName, action Action) {
		if c.total[name] == nil {
			out = append(out, Service{Name: name, Words: c.wordsOf(name), Action: action, Details: []Detail{describeWhole(c.wordsOf(name), nil, nil, nil)}})
		}
	}
	for name := range e.before {
		if _, ok := e.after[name]; !ok {
			note(name, Removed)
		}
	}
	for name := range e.after {
		if _, ok := e.before[name]; !ok {
			note(name, Added)
		}
	}
	return out
}

func (e *edits) describeFields(name model.ServiceName) (out []Detail) {
	a, b := e.before[name].Service, e.after[name].Service
	was, is := setting.Of(a), setting.Of(b)
	for _, s := range setting.All {
		switch old, now := cmp.Or(s.Text(was), s.Default), cmp.Or(s.Text(is), s.Default); {
		case !s.IsStated():
		case s == setting.Check: // its text is long: the difference has to be found
			if d, differs := checkDetail(a.Check, b.Check); differs {
				out = append(out, d)
			}
		case old != now:
			d := settingDetail(s, old, now)
			d.Text = b.Words().Text(s.Label) + " " + old + " → " + now
			out = append(out, d)
		}
	}
	if old, now := portOrNone(a.HealthCheckNodePort), portOrNone(b.HealthCheckNodePort); old != now {
		out = append(out, Detail{Kind: KindPolicy, Text: "health check node port " + old + " → " + now, Old: old, New: now})
	}
	return append(out, nameDetails(a, b)...)
}

func portOrNone(port uint16) string {
	if port == 0 {
		return "none"
	}
	return fmt.Sprint(port)
}

type standing struct {
	condition        // why it takes no connections; empty: it does
	weight, priority int
	zone             string // empty: unknown
}

// standingsOf returns the endpoints of a service port by address. Those in used take
// connections.
func standingsOf(port model.PortName, of model.ServiceState, used map[address]bool) map[address]standing {
	out := make(map[address]standing)
	for _, f := range model.Families {
		for _, e := range model.Endpoints(port, f, of.Slices) {
			s := standing{weight: e.HostWeight(), priority: int(e.Host.Priority), zone: e.Host.Place.Zone()}
			if !used[e.Address()] {
				s.condition = conditionOf(e.Host)
			}
			out[e.Address()] = s
		}
	}
	return out
}

// describeUnused describes endpoints that take no connections before and after the change, and the
// weights, priorities and zones of all.
func (s *subject) describeUnused() (out []Detail) {
	e := s.edits
	details := make(map[model.PortName][]Detail)
	for port, used := range e.usedBefore[s.name] {
		if now, stays := e.usedAfter[s.name][port]; stays {
			c := standingChange{s, standingsOf(port, e.before[s.name], used), standingsOf(port, e.after[s.name], now)}
			if list := c.describeStandings(); len(list) > 0 {
				details[port] = list
			}
		}
	}
	for _, port := range slices.SortedFunc(maps.Keys(details), model.PortName.Compare) {
		for _, d := range details[port] {
			if len(details) > 1 {
				d.Text = portLabel(port) + d.Text
			} else {
				d.Text = s.portPrefix(port) + d.Text
			}
			out = append(out, d)
		}
	}
	return out
}

// standingChange is how the endpoints of a service port stand before and after a change.
type standingChange struct {
	*subject
	before, after map[address]standing
}

func (c standingChange) describeStandings() (out []Detail) {
	idle := func(s standing) bool { return s.condition != "" }
	added, removed, changed := make(map[condition][]address), make(map[condition][]address), make(map[[2]condition][]address)
	weights := &portChange{before: make(map[address]int), after: make(map[address]int)}
	var priorities []string
	for _, a := range c.allAddresses() {
		was, had := c.before[a]
		is, has := c.after[a]
		if had && was.condition != drained && was.condition != byOperator {
			weights.before[a] = was.weight
		}
		if has && is.condition != drained && is.condition != byOperator {
			weights.after[a] = is.weight
		}
		switch {
		case !had && idle(is):
			added[is.condition] = append(added[is.condition], a)
		case !has && idle(was):
			removed[was.condition] = append(removed[was.condition], a)
		case had && has && idle(was) && idle(is) && was.condition != is.condition:
			key := [2]condition{was.condition, is.condition}
			changed[key] = append(changed[key], a)
		case had && has && was.priority != is.priority && idle(was) == idle(is):
			priorities = append(priorities, fmt.Sprintf("%s: %d → %d", model.EndpointText(a), was.priority, is.priority))
		}
	}
	reasons := maps.Clone(added)
	maps.Copy(reasons, removed)
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		out = append(out, c.exchangeDetails(removed[why], added[why], ", "+string(why), "")...)
	}
	for _, key := range slices.SortedFunc(maps.Keys(changed), func(a, b [2]condition) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		list := textsOf(changed[key])
		out = append(out, Detail{Kind: KindEndpoints, Old: string(key[0]), New: string(key[1]), Removed: list,
			Text: fmt.Sprintf("%s %s (%s), before: %s", c.in.Count(len(list), "endpoint"), key[1], joinFew(list), key[0])})
	}
	weights.compare()
	out = append(out, weights.describeWeights()...)
	if len(priorities) > 0 {
		out = append(out, Detail{Kind: KindWeights, Text: "priority of " + joinFew(priorities), Added: priorities})
	}
	return append(out, c.describeZones()...)
}

func (c standingChange) allAddresses() []address {
	all := maps.Clone(c.before)
	maps.Copy(all, c.after)
	return slices.SortedFunc(maps.Keys(all), address.Compare)
}
