package report

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/words"
)

// answerDrains answers with the drained endpoints, and the effect of draining others.
func (s *Server) answerDrains(query url.Values) (any, error) {
	asked := query["target"]
	if len(asked) > budget.DrainTargets {
		return nil, queryError{s.words().Errorf("%d endpoints are too many: at most %d", len(asked), budget.DrainTargets)}
	}
	var targets []drain.Target
	for _, text := range asked {
		t, err := drain.Decode(text)
		if err != nil {
			return nil, queryError{err}
		}
		targets = append(targets, t)
	}
	answer := s.Drains(targets)
	if begin, asked := query["begin"]; asked {
		answer.Endpoints = endpointsLike(begin[0], s.config.Names(), s.config.View)
	}
	return answer, nil
}

// Drains returns the drained endpoints, and the effect of draining others.
func (s *Server) Drains(targets []drain.Target) *api.Drains {
	answer := &api.Drains{Drained: []api.Drained{}, Words: s.words()}
	var latest drain.List
	if s.config.Drains != nil {
		list, announced := s.config.Drains.Announced()
		file := s.config.Drains.File()
		answer.File, answer.State, answer.Drained = file.Path, file.State, list.Report()
		answer.Pending = s.unserved(announced) // after the list: its change is pending until it is in the kernel
		if len(targets) > 0 {
			latest = s.config.Drains.Latest()
		}
		if p := s.config.Drains.Problem(); p != nil {
			answer.Error, answer.Since, answer.Unknown = p.Err.Error(), p.Since, p.Unknown
		}
	}
	if len(targets) > 0 {
		answer.Asked = askAbout(targets, latest, s.config.Names(), s.config.View, s.words())
	}
	return answer
}

// unserved reports whether a sync that was requested then has yet to succeed. Requests
// after it do not matter: in a busy cluster there is always one.
func (s *Server) unserved(requested time.Time) bool {
	state := s.config.State()
	return state.LastSync.IsZero() || !state.Pending.IsZero() && !state.Pending.After(requested)
}

// drainProblems returns why the list of drained endpoints cannot be used, for the status.
func (s *Server) drainProblems() (out []api.Problem) {
	if s.config.Drains == nil {
		return nil
	}
	if p := s.config.Drains.Problem(); p != nil {
		reason := model.DrainFileUnusable
		if p.Unknown {
			reason = model.DrainsUnknown
		}
		out = append(out, api.Problem{Object: "Drain file", Reason: reason, Message: strings.ReplaceAll(p.Err.Error(), "\n", "; ")})
	}
	return out
}

// drainNotes returns the drained endpoints, for the status.
func (s *Server) drainNotes() (out []api.Problem) {
	if s.config.Drains == nil {
		return nil
	}
	for _, e := range s.config.Drains.List() {
		message := "no new connections, from nftproxy drain"
		if !e.Since.IsZero() {
			message += " at " + e.Since.Local().Format("2006-01-02 15:04:05")
		}
		out = append(out, api.Problem{Object: s.words().Text("Endpoint ") + e.Text(s.wordsFor(e.Service)), Reason: model.EndpointDrained, Message: message})
	}
	return out
}

// askAbout returns the effect of draining targets on the Services of these names, on top of a
// list of drained endpoints, whether that is in force yet or not.
func askAbout(targets []drain.Target, list drain.List, names []model.ServiceName, view func(model.ServiceName) *model.View, in words.Vocabulary) []api.Asked {
	out := make([]api.Asked, len(targets))
	for i, t := range targets {
		out[i].Endpoint = t.Endpoint()
		if t.Service != (model.ServiceName{}) {
			out[i].Service = t.Service.String()
		}
	}
	all := drain.List(nil).With(time.Time{}, targets...)
	after := list.With(time.Time{}, targets...)
	known := make(map[string]bool) // endpoints, with and without ports; true: has ranges
	slices.SortFunc(names, model.ServiceName.Compare)
	for _, name := range names {
		v := view(name)
		if v == nil {
			continue // it was deleted in between
		}
		note(known, v)
		state := model.ServiceState{Service: v.Service, Slices: v.Slices}
		if !all.Concerns(name, state) {
			continue
		}
		state.Slices = undrained(v.Slices)
		frontends, ports := servedBy(v, list.Edit(name, state).Slices, after.Edit(name, state).Slices)
		for i, t := range targets {
			if t.Service != (model.ServiceName{}) && t.Service != name {
				continue
			}
			if e := ports.effect(t); e != nil {
				e.Service, e.Balance, e.Frontends = name.String(), v.Service.Balance, frontends
				out[i].Services = append(out[i].Services, *e)
			}
		}
	}
	for i, t := range targets {
		if len(out[i].Services) > 0 {
			continue
		}
		if t.Service != (model.ServiceName{}) && !slices.Contains(names, t.Service) {
			_, err := api.Resolve(t.Service.String(), names, in)
			out[i].Unknown = err.Error()
			continue
		}
		out[i].DidYouMean = suggestEndpoints(t, known)
	}
	return out
}

// endpointsLike returns the endpoints of the Services of these names whose text begins so, with
// ports and without, sorted: at most [budget.DrainOffered].
func endpointsLike(begin string, names []model.ServiceName, view func(model.ServiceName) *model.View) (out []string) {
	known := make(map[string]bool)
	for _, name := range names {
		if v := view(name); v != nil {
			note(known, v)
		}
	}
	for name := range known {
		if strings.HasPrefix(name, begin) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), budget.DrainOffered)]
}

// note notes the endpoints of a Service.
func note(known map[string]bool, v *model.View) {
	for _, s := range v.Slices {
		for i := range s.Hosts {
			if len(known) > budget.DrainSearch {
				return
			}
			a := s.Hosts[i].Address
			known[a.String()] = known[a.String()] || len(v.Service.Extra().Ranges) > 0
			for _, p := range s.Ports {
				known[netip.AddrPortFrom(a, p.Port).String()] = false
			}
		}
	}
}

// suggestEndpoints returns endpoints that resemble a target, first the ones of its address,
// and the address itself if it has ranges of ports.
func suggestEndpoints(t drain.Target, known map[string]bool) (out []string) {
	var names []string
	for name, ranges := range known {
		at, err := netip.ParseAddrPort(name)
		switch {
		case err == nil && at.Addr() == t.Address, ranges && name == t.Address.String():
			out = append(out, name)
		case (err == nil) == (t.Port != 0):
			names = append(names, name)
		}
	}
	if len(out) > 0 {
		slices.Sort(out)
		return out[:min(len(out), maxSuggested)]
	}
	return suggest.Similar(t.Endpoint(), names)
}

// maxSuggested is how many endpoints are suggested.
const maxSuggested = 3

// servedPort is a frontend of a Service with its endpoints, and how many of them take new
// connections after a drain.
type servedPort struct {
	endpoints   []model.Endpoint
	known, left int
	stops       string
	ofRange     bool // endpoints are drained as a whole (9.20)
	relayed     bool
}

type servedPorts []servedPort

// servedBy returns the frontends of a Service. before and after are its slices before and
// after a drain.
func servedBy(v *model.View, before, after []*model.EndpointSlice) (frontends []string, ports servedPorts) {
	for _, c := range v.Claims {
		if c.Winner != nil {
			continue // another Service has it
		}
		r, f := c.Route, model.FamilyOf(c.Route.Frontend.Address)
		frontends = append(frontends, r.Frontend.String())
		p := servedPort{endpoints: model.Endpoints(r.PortName(), f, v.Slices), known: r.Choice.Known, left: r.Choice.Known, ofRange: r.PortName().OfRange(), relayed: r.Relayed()}
		now, then := with(v, r, before), with(v, r, after)
		for _, d := range []struct{ now, then served.Decision }{{now.Inside, then.Inside}, {now.Outside, then.Outside}} {
			p.left = min(p.left, len(d.then.Endpoints))
			if d.now.Verdict == model.Forward && d.then.Verdict != model.Forward {
				p.stops = d.then.Verdict.String()
			}
		}
		ports = append(ports, p)
	}
	return frontends, ports
}

// with returns how the node would serve a route if the Service had these slices.
func with(v *model.View, r *model.Route, slices []*model.EndpointSlice) *served.Frontend {
	edited := *r
	edited.Choice = model.Choose(v.Service, model.Endpoints(r.PortName(), model.FamilyOf(r.Frontend.Address), slices), v.Node)
	return served.Of(&edited, v.Scheduler)
}

// effect returns the effect of the drain on the frontends that have a target; nil: none has.
func (all servedPorts) effect(t drain.Target) *api.Effect {
	var e *api.Effect
	for _, p := range all {
		first, _ := slices.BinarySearchFunc(p.endpoints, t.Address, func(e model.Endpoint, a netip.Addr) int { return e.Host.Address.Compare(a) })
		for _, endpoint := range p.endpoints[first:] {
			if endpoint.Host.Address != t.Address {
				break
			}
			if t.Port != 0 && (p.ofRange || t.Port != endpoint.Port) {
				continue
			}
			if e == nil {
				e = &api.Effect{Endpoints: p.known, Left: p.left, Drained: true}
			}
			if p.left < e.Left {
				e.Endpoints, e.Left = p.known, p.left
			}
			e.Relayed = e.Relayed || p.relayed
			e.Drained = e.Drained && endpoint.Host.Drain
			e.Stops = cmp.Or(p.stops, e.Stops)
		}
	}
	return e
}

// undrained returns slices as they are without drains by the operator.
func undrained(all []*model.EndpointSlice) []*model.EndpointSlice {
	out := slices.Clone(all)
	for i, s := range out {
		if !slices.ContainsFunc(s.Hosts, func(h model.Host) bool { return h.DrainedByOperator() }) {
			continue
		}
		edited := *s
		edited.Hosts = slices.Clone(s.Hosts)
		for j := range edited.Hosts {
			edited.Hosts[j].EndDrainByOperator()
		}
		out[i] = &edited
	}
	return out
}
