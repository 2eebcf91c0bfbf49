package drain

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Services are the Services of a node.
type Services interface {
	Names() []model.ServiceName
	View(model.ServiceName) *model.View // nil: it was deleted in between
}

// Ask returns the effect of draining targets on Services, on top of a list of drained endpoints, whether that
// is in force yet or not. unknown says why there is no Service of a name.
func Ask(targets []Target, list List, of Services, unknown func(model.ServiceName) string) []model.Asked {
	out := make([]model.Asked, len(targets))
	for i, t := range targets {
		out[i].Endpoint, out[i].Service = t.Endpoint(), t.serviceText()
	}
	all := List(nil).With(time.Time{}, targets...)
	after := list.With(time.Time{}, targets...)
	known := make(map[string]bool) // endpoints, with and without ports; true: has ranges
	names := of.Names()
	slices.SortFunc(names, model.ServiceName.Compare)
	for _, name := range names {
		v := of.View(name)
		if v == nil {
			continue
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
				e.ServiceText, e.Frontends = name.Text(v.Service.Balance), frontends
				out[i].Services = append(out[i].Services, *e)
			}
		}
	}
	for i, t := range targets {
		if len(out[i].Services) > 0 {
			continue
		}
		if t.Service != (model.ServiceName{}) && !slices.Contains(names, t.Service) {
			out[i].Unknown = unknown(t.Service)
			continue
		}
		out[i].DidYouMean = suggestEndpoints(t, known)
	}
	return out
}

// EndpointsLike returns the endpoints of Services whose text begins so, with ports and without, sorted: at most
// [budget.DrainOffered].
func EndpointsLike(begin string, of Services) (out []string) {
	known := make(map[string]bool)
	for _, name := range of.Names() {
		if v := of.View(name); v != nil {
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
func suggestEndpoints(t Target, known map[string]bool) (out []string) {
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
// connections after a
type servedPort struct {
	endpoints   []model.Endpoint
	known, left int
	stops       string
	ofRange     bool // endpoints are drained as a whole (9.20)
	relayed     bool
}

type servedPorts []servedPort

// servedBy returns the frontends of a Service. before and after are its slices before and
// after a
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
func (all servedPorts) effect(t Target) *model.Effect {
	var e *model.Effect
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
				e = &model.Effect{Endpoints: p.known, Left: p.left, Drained: true}
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
