package drain

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Path is where a daemon answers with a [Report]. The parameters "endpoint", any number
// of them, and "service" ask about targets.
const Path = "/drain"

// Report is what a daemon knows about drained endpoints. The names of the JSON fields are
// stable.
type Report struct {
	File string `json:"file"` // that the daemon follows; empty: none
	// Error is why the file cannot be used since then; the last good content is in force.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Pending reports that changes wait to be applied to the kernel.
	Pending bool      `json:"pending"`
	Drained []Drained `json:"drained"` // the list in force
	Asked   []Asked   `json:"asked,omitempty"`
}

// Drained is an entry of the list in force.
type Drained struct {
	Endpoint string    `json:"endpoint"`
	Service  string    `json:"service,omitempty"` // empty: all
	Since    time.Time `json:"since,omitzero"`
}

// Asked is a target and the Services that have it.
type Asked struct {
	Endpoint string   `json:"endpoint"`
	Service  string   `json:"service,omitempty"`
	Services []Effect `json:"services,omitempty"`
	// DidYouMean are similar endpoints, if no Service has this one.
	DidYouMean []string `json:"didYouMean,omitempty"`
}

// Effect is what draining a target, beside all others that are asked about, means for a
// Service.
type Effect struct {
	Service   string `json:"service"`
	Endpoints int    `json:"endpoints"` // of the service port that has the fewest left
	Left      int    `json:"left"`      // of them take new connections then
	// Stops is what happens to new connections that are forwarded now: reject or drop.
	Stops string `json:"stops,omitempty"`
	// Drained reports that no rule leads new connections to the target.
	Drained bool `json:"drained"`
	// Answers are the endpoints of the target, and Frontends the addresses of the Service,
	// each with its protocol: "tcp 10.128.0.2:8080".
	Answers   []string `json:"answers"`
	Frontends []string `json:"frontends"`
}

// Report returns the list as a report.
func (l List) Report() []Drained {
	out := []Drained{}
	for _, e := range l {
		d := Drained{Endpoint: e.Endpoint(), Since: e.Since}
		if e.Service != (model.ServiceName{}) {
			d.Service = e.Service.String()
		}
		out = append(out, d)
	}
	return out
}

// Ask returns what draining targets means for the Services of these names.
func Ask(targets []Target, names []model.ServiceName, view func(model.ServiceName) *model.View) []Asked {
	out := make([]Asked, len(targets))
	for i, t := range targets {
		out[i].Endpoint = t.Endpoint()
		if t.Service != (model.ServiceName{}) {
			out[i].Service = t.Service.String()
		}
	}
	all := List(nil).With(time.Time{}, targets...)
	known := make(map[string]bool) // endpoints, with and without ports
	slices.SortFunc(names, model.ServiceName.Compare)
	for _, name := range names {
		v := view(name)
		if v == nil {
			continue // it was deleted in between
		}
		note(known, v)
		if !all.Concerns(name, model.ServiceState{Slices: v.Slices}) {
			continue
		}
		for i, t := range targets {
			if e := effect(v, t, all); e != nil {
				out[i].Services = append(out[i].Services, *e)
			}
		}
	}
	for i := range out {
		if len(out[i].Services) == 0 {
			out[i].DidYouMean = suggestEndpoints(targets[i], known)
		}
	}
	return out
}

// note notes the endpoints of a Service.
func note(known map[string]bool, v *model.View) {
	const most = 100_000 // more are too slow to search
	for _, s := range v.Slices {
		for i := range s.Hosts {
			if len(known) > most {
				return
			}
			known[s.Hosts[i].Address.String()] = true
			for _, p := range s.Ports {
				known[netip.AddrPortFrom(s.Hosts[i].Address, p.Port).String()] = true
			}
		}
	}
}

// suggestEndpoints returns endpoints that resemble a target, first those of its address.
func suggestEndpoints(t Target, known map[string]bool) (out []string) {
	var names []string
	for name := range known {
		at, err := netip.ParseAddrPort(name)
		switch {
		case err == nil && at.Addr() == t.Address:
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

// effect returns what draining all targets means for a Service that has this one; nil:
// it does not.
func effect(v *model.View, t Target, all List) *Effect {
	e := &Effect{Service: v.Service.Name.String(), Drained: true}
	if t.Service != (model.ServiceName{}) && t.Service != v.Service.Name {
		return nil
	}
	after := all.Edit(v.Service.Name, model.ServiceState{Service: v.Service, Slices: v.Slices})
	for _, c := range v.Claims {
		if c.Winner == nil {
			e.Frontends = append(e.Frontends, label(c.Route.Frontend.Protocol, netip.AddrPortFrom(c.Route.Frontend.Address, c.Route.Frontend.Port)))
			e.addRoute(v, c.Route, t, after.Slices)
		}
	}
	if len(e.Answers) == 0 {
		return nil
	}
	return e
}

// addRoute adds what happens at a frontend.
func (e *Effect) addRoute(v *model.View, r *model.Route, t Target, after []*model.EndpointSlice) {
	f := model.FamilyOf(r.Frontend.Address)
	mine := false
	for _, endpoint := range model.Endpoints(r.PortName(), f, v.Slices) {
		if at := endpoint.Address(); at.Addr() == t.Address && (t.Port == 0 || t.Port == at.Port()) {
			mine = true
			e.Drained = e.Drained && endpoint.Host.Drain
			if name := label(r.Port.Protocol, at); !slices.Contains(e.Answers, name) {
				e.Answers = append(e.Answers, name)
			}
		}
	}
	if !mine {
		return
	}
	then := *r
	then.Choice = model.Choose(model.Endpoints(r.PortName(), f, after), v.Node)
	for _, d := range []struct{ now, then model.Decision }{{r.Inside(), then.Inside()}, {r.Outside(), then.Outside()}} {
		if n := len(d.then.Endpoints); e.Endpoints == 0 || n < e.Left {
			e.Left, e.Endpoints = n, r.Choice.Known
		}
		if d.now.Verdict == model.Forward && d.then.Verdict != model.Forward {
			e.Stops = d.then.Verdict.String()
		}
	}
}

func label(p model.Protocol, at netip.AddrPort) string { return p.String() + " " + at.String() }

// ParseLabel parses an endpoint or a frontend of an [Effect].
func ParseLabel(text string) (p model.Protocol, at netip.AddrPort, err error) {
	protocol, address, _ := strings.Cut(text, " ")
	if at, err = netip.ParseAddrPort(address); err == nil {
		p, err = model.ParseProtocol(protocol)
	}
	return p, at, err
}
