package served

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// Of returns how a node serves a route. Nothing is unknown. scheduler is the one of
// Services that ask for none.
func Of(r *model.Route, scheduler model.Scheduler) *Frontend {
	f := &Frontend{
		Frontend: r.Frontend, Port: r.PortName(), Kind: r.Kind, Scheduler: cmp.Or(r.Scheduler(), scheduler, model.RoundRobin),
		Affinity: r.AffinityTimeout(), Together: r.AffinityTimeout() > 0 && r.Service.BindsTogether(), Masquerading: r.Masquerading(), Sources: r.Sources, Limits: r.Service.Extra().Limits,
	}
	f.Relayed = r.Relayed() && r.Inside().Verdict == model.Forward // others are refused alike
	if r.Kind == model.ClusterIP {
		f.InternalPolicy = r.Service.InternalPolicy
	}
	inside, outside := r.Inside(), r.Outside()
	var local []model.Endpoint
	if r.Local() {
		f.ExternalPolicy, local = model.PolicyLocal, outside.Endpoints
	}
	within, without := placement.Slots(r.Service, f.Scheduler, inside.Endpoints, local)
	f.Inside = decisionOf(inside, within)
	f.Outside = f.Inside
	if r.Local() {
		f.Outside = decisionOf(outside, without)
	}
	return f
}

func decisionOf(d model.Decision, slots func(model.Endpoint) int) Decision {
	out := Decision{Verdict: d.Verdict}
	if d.Verdict != model.Forward {
		return out
	}
	out.Endpoints = make([]Endpoint, 0, len(d.Endpoints))
	for _, e := range d.Endpoints {
		out.Endpoints = append(out.Endpoints, Endpoint{e.Address(), slots(e)})
	}
	out.Endpoints = joinEndpoints(out.Endpoints)
	return out
}

func joinEndpoints(all []Endpoint) []Endpoint {
	slices.SortFunc(all, func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	out := all[:0]
	for _, e := range all {
		if n := len(out) - 1; n >= 0 && out[n].Address == e.Address {
			out[n].Slots += e.Slots
			continue
		}
		out = append(out, e)
	}
	return out
}
