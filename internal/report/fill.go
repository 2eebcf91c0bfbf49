package report

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// frontend is a frontend as it is served.
type frontend struct {
	*served.Frontend
	route       *model.Route // nil if the report is from the kernel
	connections *uint64      // nil without counters
}

// known returns the number of all endpoints; 0 if the report is from the kernel.
func (f *frontend) known() int {
	if f.route == nil {
		return 0
	}
	return f.route.Choice.Known
}

// outside returns the decision for clients outside of the cluster, if the external policy
// gives them one of their own, or nil.
func (f *frontend) outside() *served.Decision {
	if f.ExternalPolicy != model.PolicyLocal || f.Inside.Verdict == model.Reject {
		return nil
	}
	return &f.Outside
}

// byPort sorts frontends, and returns the ones of each service port.
func byPort(all []frontend) [][]frontend {
	slices.SortFunc(all, func(a, b frontend) int {
		return cmp.Or(a.Port.Compare(b.Port), cmp.Compare(a.Kind, b.Kind), a.Frontend.Frontend.Compare(b.Frontend.Frontend))
	})
	return slices.Collect(groups(all, func(a, b *frontend) bool { return a.Port == b.Port }))
}

// fill adds the frontends that a filter selects, sorted by service port, with their
// problems.
func (r *report) fill(all []frontend, filter *api.Filter) {
	ports := byPort(all)
	r.suggest(all, filter)
	ports = slices.DeleteFunc(ports, func(p []frontend) bool { return !filter.Matches(p[0].Port.Service) })
	for _, p := range ports {
		r.judge(p)
	}
	if filter.Problems {
		affected := r.affected()
		ports = slices.DeleteFunc(ports, func(p []frontend) bool { return !affected[r.objectOf(p[0].Port.Service)] })
	}
	sums := newSums()
	for _, p := range ports {
		for i := range p {
			sums.add(p[i].Frontend, r.isBalance(p[0].Port.Service))
		}
	}
	for i := range sums.services {
		if sums.services[i].Balance {
			r.Balances++
		}
	}
	r.Services, r.Frontends, r.Endpoints = len(sums.services), sums.totals.Frontends, sums.totals.Endpoints
	if filter.Rows > 0 && r.Frontends > filter.Rows {
		r.Omitted = r.Frontends
		return
	}
	for _, p := range ports {
		r.ServicePorts = append(r.ServicePorts, servicePort(p, r.isBalance(p[0].Port.Service)))
	}
}

// servicePort returns the entry for the frontends of one service port.
func servicePort(all []frontend, isBalance bool) api.ServicePort {
	port := all[0].Port
	p := api.ServicePort{
		Balance:   isBalance,
		Namespace: port.Service.Namespace, Name: port.Service.Name, Port: port.Port, Protocol: port.Protocol.String(),
		Frontends: make([]api.Frontend, len(all)),
	}
	if r := all[0].route; r != nil {
		p.Stated = setting.StatedOf(r.Service)
	}
	for i := range all {
		f := &all[i]
		p.AffinitySeconds = max(p.AffinitySeconds, f.Affinity.Seconds())
		if f.Scheduler > model.RoundRobin {
			p.Scheduler = f.Scheduler.String()
		}
		p.MaglevSlots = max(p.MaglevSlots, f.TableSize())
		p.Frontends[i] = f.entry()
	}
	return p
}

func (f *frontend) entry() api.Frontend {
	out := api.Frontend{
		Kind: f.Kind.String(), Address: f.Target(), Decision: decisionOf(f.Inside), Connections: f.connections, Known: f.known(),
		SourceRanges: f.Sources != nil, Limits: f.Limits != model.Limits{}, ClientAddresses: f.ClientAddresses().String(), Relayed: f.Relayed,
	}
	if f.Sources != nil {
		out.AllowList, out.DenyList = f.Sources.Limited, len(f.Sources.Denied) > 0
	}
	if o := f.outside(); o != nil {
		d := decisionOf(*o)
		out.Outside = &d
	}
	if f.ExternalPolicy == model.PolicyLocal || f.InternalPolicy == model.PolicyLocal {
		out.Policy = model.PolicyLocal.String()
	}
	return out
}

func decisionOf(d served.Decision) api.Decision {
	return api.Decision{Verdict: d.Verdict.String(), Endpoints: len(d.Endpoints)}
}
