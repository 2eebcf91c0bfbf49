// Package report makes the documents of api: what a node serves and whether its rules are up
// to date, how a Service is served, live data, and drained endpoints. Where no daemon runs,
// status and description are read from the tables of the kernel.
package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// report is a report that is being made.
type report struct {
	api.Status
	origins origins // nil: no Service comes from a Balance
	// mistakes are the mistakes of the source, each with its file, if it names them.
	mistakes []string
}

// origins is the part of [Words] that knows where a Service comes from.
type origins interface {
	IsBalance(model.ServiceName) bool
}

func (r *report) isBalance(name model.ServiceName) bool {
	return r.origins != nil && r.origins.IsBalance(name)
}

func (r *report) wordsFor(name model.ServiceName) words.Vocabulary {
	return words.Of(r.isBalance(name))
}

// objectOf returns the object that a Service comes from, as problems name it.
func (r *report) objectOf(name model.ServiceName) model.Object {
	return name.ObjectAs(r.isBalance(name))
}

func (r *report) addServiceProblem(of model.ServiceName, reason model.Reason, message string) {
	r.Problems = append(r.Problems, api.Problem{Object: r.objectOf(of), Reason: reason, Message: message})
}

// nameBalances names Balances where others, which know the names of Services alone, have
// problems of Services.
func (r *report) nameBalances() {
	for _, list := range [][]api.Problem{r.Problems, r.Notes} {
		for i := range list {
			if name, ok := list[i].Object.Service(); ok {
				list[i].Object = r.objectOf(name)
			}
		}
	}
}

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

func (r *report) suggest(all []frontend, filter *api.Filter) {
	r.Filtered = filter.Selects() || filter.Problems
	if !filter.Selects() || slices.ContainsFunc(all, func(f frontend) bool { return filter.Matches(f.Port.Service) }) {
		return
	}
	var namespaces, names, full []string
	for i := range all {
		if s := all[i].Port.Service; i == 0 || s != all[i-1].Port.Service {
			namespaces, names, full = append(namespaces, s.Namespace), append(names, s.Name), append(full, s.String())
		}
	}
	if filter.Namespace != "" && !slices.Contains(namespaces, filter.Namespace) {
		r.DidYouMean = suggest.Similar(filter.Namespace, slices.Compact(namespaces))
		return
	}
	for _, pattern := range filter.Names {
		if strings.Contains(pattern, "/") {
			r.DidYouMean = append(r.DidYouMean, suggest.Similar(pattern, full)...)
		} else {
			r.DidYouMean = append(r.DidYouMean, suggest.Similar(pattern, names)...)
		}
	}
}

// Line returns the report of a running daemon in one line: the numbers of Services and
// endpoints, and the most urgent problem.
func (s *Server) Line() string {
	r, err := s.report(&api.Filter{})
	if err != nil {
		return "cannot build the report: " + err.Error()
	}
	return r.line()
}

func (r *report) line() string {
	served := r.Words.Count(r.Services, "Service") + ", " + r.Words.Count(r.Endpoints, "endpoint")
	if len(r.Problems) == 0 {
		return served
	}
	first := r.Problems[0]
	message, _, _ := strings.Cut(first.Message, "\n")
	return served + "; " + terminal.Count(len(r.Problems), "problem") + ": " + first.Object.String() + ": " + message
}
