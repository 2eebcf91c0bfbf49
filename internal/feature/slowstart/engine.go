// Package slowstart gives an endpoint that begins to take connections a small part of its
// weight at first, and the whole after the time that its Service asks for. An [Engine] is an
// editor of a source, the last one: it sees which endpoints health checks and draining leave.
package slowstart

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Engine follows the endpoints of Services with a slow start. While no endpoint starts, Run has
// no timer, and without such a Service the engine holds no memory. Its methods are safe for
// concurrent use.
type Engine struct {
	node *feature.Node

	mu       sync.Mutex // guards what follows
	services map[model.ServiceName]*service
	changed  func(...model.ServiceName) // nil: Run does not run
}

type service struct {
	given model.ServiceState
	time  time.Duration
	up    map[netip.AddrPort]struct{} // endpoints that take connections
	// begun has the endpoints that start, with the step in which each began. All of a Service
	// take their steps together, so that the rules change once for each of them.
	begun map[netip.AddrPort]int
	// awaited are the names of servers that had no address when the Service was new: it brings the
	// first ones along.
	awaited []string
	zero    time.Time   // of the first step
	next    *time.Timer // of the next step; nil: there was none yet
}

// step is the time between two steps.
func (s *service) step() time.Duration { return s.time / (model.StartParts - 1) }

// steps returns how many steps have been taken, and the nearest one, with which an endpoint that
// begins now has its time except for half a step.
func (s *service) steps(now time.Time) (taken, nearest int) {
	d, step := now.Sub(s.zero), s.step()
	return int(d / step), int((d + step/2) / step)
}

// Edit implements the interface of editors: it returns the state with the endpoints that start.
// The endpoints of a Service that the engine sees for the first time have their whole weight: a
// node that starts, and a new Service, have no others that could take the load. Names of servers are
// resolved a little later, which makes no difference.
func (e *Engine) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.services[name]
	if state.Service == nil || state.Service.Extra().SlowStart == 0 {
		if s != nil && s.next != nil {
			s.next.Stop()
		}
		delete(e.services, name)
		return state
	}
	now := time.Now()
	switch {
	case s == nil:
		if e.services == nil {
			e.services = make(map[model.ServiceName]*service)
		}
		s = &service{given: state, up: available(state), awaited: unresolved(state)}
		e.services[name] = s
	case s.given.Service != state.Service || !slices.Equal(s.given.Slices, state.Slices):
		s.given = state
		s.follow(available(state), s.resolved(), now)
	}
	s.last(state.Service.Extra().SlowStart, now)
	return e.edited(name, s, now)
}

// available returns the endpoints of a state that take connections, or would if others failed.
func available(state model.ServiceState) map[netip.AddrPort]struct{} {
	up := make(map[netip.AddrPort]struct{})
	ranges := len(state.Service.Extra().Ranges) > 0
	for _, slice := range state.Slices {
		for i := range slice.Hosts {
			h := &slice.Hosts[i]
			if !h.Ready || h.Drain || h.Failing {
				continue
			}
			for _, p := range slice.Ports {
				up[netip.AddrPortFrom(h.Address, p.Port)] = struct{}{}
			}
			if ranges {
				up[netip.AddrPortFrom(h.Address, 0)] = struct{}{}
			}
		}
	}
	return up
}

// unresolved returns the names of servers that have no address.
func unresolved(state model.ServiceState) (out []string) {
	for i := range state.Service.Extra().Names {
		if n := &state.Service.Extra().Names[i]; len(n.Addresses) == 0 {
			out = append(out, n.Text)
		}
	}
	return out
}

// resolved returns the addresses of the awaited names that have some now. Others are still awaited,
// while the Service has them.
func (s *service) resolved() (first []netip.Addr) {
	if len(s.awaited) == 0 {
		return nil
	}
	for _, n := range s.given.Service.Extra().Names {
		if !slices.Contains(s.awaited, n.Text) {
			continue
		}
		for _, a := range n.Addresses {
			first = append(first, a.Address)
		}
	}
	still := unresolved(s.given)
	s.awaited = slices.DeleteFunc(s.awaited, func(name string) bool { return !slices.Contains(still, name) })
	return first
}

// follow begins the start of endpoints that are available now, and were not before, except at the
// addresses that the Service has brought along.
func (s *service) follow(up map[netip.AddrPort]struct{}, brought []netip.Addr, now time.Time) {
	for a := range s.begun {
		if _, stays := up[a]; !stays {
			delete(s.begun, a)
		}
	}
	for a := range up {
		if _, known := s.up[a]; known || slices.Contains(brought, a.Addr()) {
			continue
		}
		if len(s.begun) == 0 {
			s.begun, s.zero = make(map[netip.AddrPort]int), now
		}
		_, s.begun[a] = s.steps(now)
	}
	s.up = up
}

// last sets the time that a start lasts. What an endpoint has of its weight stays.
func (s *service) last(d time.Duration, now time.Time) {
	if s.time == d {
		return
	}
	if s.time != 0 && len(s.begun) > 0 {
		taken, _ := s.steps(now)
		for a := range s.begun {
			s.begun[a] -= taken
		}
		s.zero = now
	}
	s.time = d
}

// edited returns the state of a Service with the endpoints that start, and has it edited again when the next
// step is due.
func (e *Engine) edited(name model.ServiceName, s *service, now time.Time) model.ServiceState {
	if len(s.begun) == 0 {
		return s.given
	}
	taken, _ := s.steps(now)
	all := s.starting(now)
	maps.DeleteFunc(s.begun, func(_ netip.AddrPort, begun int) bool { return taken-begun+1 >= model.StartParts })
	if len(all) == 0 {
		return s.given
	}
	due := s.zero.Add(time.Duration(taken+1) * s.step())
	if s.next == nil {
		s.next = time.AfterFunc(due.Sub(now), func() { e.announce(name) })
	} else {
		s.next.Reset(due.Sub(now))
	}
	return s.given.WithStarting(all)
}

// announce has a Service edited again.
func (e *Engine) announce(name model.ServiceName) {
	e.mu.Lock()
	changed := e.changed
	e.mu.Unlock()
	if changed != nil {
		changed(name)
	}
}

// starting returns the endpoints that start, sorted, with the parts of their weight.
func (s *service) starting(now time.Time) (all []model.Starting) {
	taken, _ := s.steps(now)
	for a, begun := range s.begun {
		if part := max(1, taken-begun+1); part < model.StartParts {
			all = append(all, model.Starting{Endpoint: a, Part: uint8(part), Full: s.zero.Add(time.Duration(begun+model.StartParts-1) * s.step())})
		}
	}
	slices.SortFunc(all, func(a, b model.Starting) int { return a.Endpoint.Compare(b.Endpoint) })
	return all
}

// Run has Services edited again at each step of their endpoints, until ctx ends.
func (e *Engine) Run(ctx context.Context, changed func(...model.ServiceName)) {
	e.follow(changed)
	<-ctx.Done()
	e.follow(nil)
}

func (e *Engine) follow(changed func(...model.ServiceName)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changed = changed
}

// Starting returns the endpoints that start slowly, for plans on this machine.
func (e *Engine) Starting() (out []model.StartingEndpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for name, s := range e.services {
		for _, a := range s.starting(now) {
			out = append(out, model.StartingEndpoint{ServiceRef: name.Ref(), Endpoint: a.Endpoint, Part: a.Part})
		}
	}
	slices.SortFunc(out, func(a, b model.StartingEndpoint) int {
		return cmp.Or(a.ServiceName().Compare(b.ServiceName()), a.Endpoint.Compare(b.Endpoint))
	})
	return out
}

// AddTo implements [feature.Knower].
func (e *Engine) AddTo(k *feature.Known) { k.Starting = e.Starting() }

// Plan implements [feature.Planner].
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	edited, starting := Mark(s, k.Starting)
	return feature.Planned{Snapshot: edited, Endpoints: starting, State: "starting slowly"}, nil
}

// Mark returns a snapshot as an engine edits it in which these endpoints start. Services without a
// slow start have none. marked has the endpoints, for example "10.1.1.2:80 of default/web".
func Mark(s *model.Snapshot, all []model.StartingEndpoint) (edited *model.Snapshot, marked []string) {
	if len(all) == 0 {
		return s, nil
	}
	of := make(map[model.ServiceName][]model.Starting)
	for _, a := range all {
		if a.Part > 0 && a.Part < model.StartParts {
			of[a.ServiceName()] = append(of[a.ServiceName()], model.Starting{Endpoint: a.Endpoint, Part: a.Part})
		}
	}
	edited = s.Edit(func(name model.ServiceName, state model.ServiceState) model.ServiceState {
		starting := of[name]
		if state.Service.Extra().SlowStart == 0 || len(starting) == 0 {
			return state
		}
		slices.SortFunc(starting, func(a, b model.Starting) int { return a.Endpoint.Compare(b.Endpoint) })
		for _, a := range starting {
			marked = append(marked, model.EndpointText(a.Endpoint)+" of "+name.String())
		}
		return state.WithStarting(starting)
	})
	return edited, marked
}

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	return &Engine{node: n}
}

// Collectors implements [feature.Counter].
func (e *Engine) Collectors() []prometheus.Collector {
	starting := scraped.Gauge("nftproxy_slow_start_endpoints",
		"Endpoints of a Service that start slowly, for at most 100 Services that have such; the others together have no names.", "namespace", "service")
	return []prometheus.Collector{scraped.New(func(out scraped.Values) error {
		counts := countStarting(e.node.Serving())
		rest := 0
		for _, n := range counts {
			rest += n
		}
		for _, name := range feature.Highest(counts) {
			out.Add(starting, float64(counts[name]), name.Namespace, name.Name)
			rest -= counts[name]
		}
		if rest > 0 {
			out.Add(starting, float64(rest), "", "")
		}
		return nil
	}, starting)}
}

// countStarting returns how many endpoints of each Service start slowly and can be chosen. Services without such are left out.
func countStarting(s feature.Serving) map[model.ServiceName]int {
	found := make(map[model.ServiceName]map[netip.AddrPort]struct{})
	s.Routes(func(r *model.Route) bool {
		if len(r.Service.Extra().Starting) == 0 { // of most
			return true
		}
		for _, choice := range [...][]model.Endpoint{r.Choice.Cluster, r.Choice.Local} {
			for _, e := range choice {
				if r.Service.Start(e) == nil {
					continue
				}
				if found[r.Service.Name] == nil {
					found[r.Service.Name] = make(map[netip.AddrPort]struct{})
				}
				found[r.Service.Name][e.Address()] = struct{}{}
			}
		}
		return true
	})
	counts := make(map[model.ServiceName]int, len(found))
	for name, endpoints := range found {
		counts[name] = len(endpoints)
	}
	return counts
}
