package report

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Kinds of objects that are none of Kubernetes.
const (
	rulesKind    = "Rules"
	sourceKind   = "Source"
	affinityKind = "Affinity map"
)

// longPending is how long changes may wait before that is a problem.
const longPending = time.Minute

// addProblems adds what follows from the rest of the report, and sorts all problems.
func (r *report) addProblems(now time.Time) {
	add := func(kind, name string, reason model.Reason, format string, args ...any) {
		r.Problems = append(r.Problems, api.Problem{Object: model.Object{Kind: kind, Name: name}, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if e := r.SourceError; e != nil {
		mistakes := r.mistakes
		if len(mistakes) == 0 {
			mistakes = []string{e.Message}
		}
		for _, m := range mistakes { // of several files with --isolate-files
			add(sourceKind, "", model.SourceUnusable, "%s", m)
		}
	}
	for _, w := range r.Warnings {
		add(sourceKind, "", model.InputWarning, "%s", w)
	}
	if r.From == api.FromDaemon {
		switch s := r.LastSync; {
		case s == nil && !r.PostponedUntil.IsZero():
			add(rulesKind, "", model.NotSynced, "the source is read at %s (--start-jitter); the rules of an earlier run serve", r.PostponedUntil.Format(time.TimeOnly))
		case s == nil:
			add(rulesKind, "", model.NotSynced, "waiting for the source")
		case s.Error != "":
			add(rulesKind, "", model.SyncFailed, "%s", s.Error)
		}
		if wait := now.Sub(r.PendingSince).Round(time.Second); !r.PendingSince.IsZero() && wait >= longPending {
			add(rulesKind, "", model.ChangesPending, "for %s", wait)
		}
	}
	if c := r.RulesChanged; c != nil && now.Sub(c.Last) < recently {
		add(rulesKind, "", model.RulesChanged, "%s", r.interferenceText(c, now))
	}
	for _, a := range r.Affinity {
		if a.Clients >= a.Size/10*9 {
			add(affinityKind, a.Name(), model.AffinityFull, "%s of %d clients are remembered", a.Count(), a.Size)
		}
	}
	r.SortProblems()
}

// recently is how long a change of the rules by another program is a problem.
const recently = time.Hour

func (r *report) interferenceText(c *api.Interference, now time.Time) string {
	by := "another program"
	if c.Process != "" {
		by = "process " + c.Process
	}
	text := fmt.Sprintf("by %s, %s ago; the repair took %s", by, now.Sub(c.Last).Round(time.Second), terminal.Count(c.Changes, "change"))
	if c.Times > 1 {
		text += fmt.Sprintf("; %d times since the start", c.Times)
	}
	if len(c.Differences) > 0 {
		d := &c.Differences[0]
		of := ""
		if namespace, name, ok := strings.Cut(d.Service, "/"); ok {
			of = ", of " + r.objectOf(model.ServiceName{Namespace: namespace, Name: name}).String()
		}
		text += "; first" + of + ": " + d.Change
	}
	return text
}

// judge adds the problem of a service port whose connections are rejected or dropped.
func (r *report) judge(port []frontend) {
	var rejecting, dropping, droppingOutside []*frontend
	for i := range port {
		switch f := &port[i]; {
		case f.Inside.Verdict == model.Reject:
			rejecting = append(rejecting, f)
		case f.Inside.Verdict == model.Drop:
			dropping = append(dropping, f)
		case f.outside() != nil && f.Outside.Verdict == model.Drop:
			droppingOutside = append(droppingOutside, f)
		}
	}
	problem := func(reason model.Reason, why string, all []*frontend) api.Problem {
		return api.Problem{Object: r.objectOf(port[0].Port.Service), Reason: reason, Message: addressed(all) + port[0].Port.Suffix() + why}
	}
	if len(rejecting) > 0 {
		r.Problems = append(r.Problems, problem(model.LacksEndpoints, r.noEndpoint(port[0].Port.Service, rejecting[0].known()), rejecting))
	}
	if len(dropping) > 0 {
		r.Problems = append(r.Problems, problem(model.LacksLocalEndpoints, r.noEndpoint(port[0].Port.Service, dropping[0].known()), dropping))
	}
	if len(droppingOutside) > 0 {
		r.Notes = append(r.Notes, problem(model.LacksLocalEndpoints, "", droppingOutside))
	}
}

// noEndpoint returns how many endpoints a frontend has; known is their number, if the
// report is from a daemon.
func (r *report) noEndpoint(of model.ServiceName, known int) string {
	in := r.wordsFor(of)
	switch {
	case r.From == api.FromKernel:
		return ""
	case known == 0:
		return in.Text(": it has no endpoints")
	case known == 1:
		return in.Text(": its only endpoint takes none")
	}
	return in.Sprintf(": none of its %d endpoints takes any", known)
}

// addressed names the first frontend and counts the others.
func addressed(all []*frontend) string {
	text := all[0].Frontend.Frontend.String()
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (r *report) affected() map[model.Object]bool {
	out := make(map[model.Object]bool)
	for _, list := range [][]api.Problem{r.Problems, r.Notes} {
		for _, p := range list {
			out[p.Object] = true
		}
	}
	return out
}

func (r *report) selectProblems(filter *api.Filter) {
	if filter.Selects() {
		r.FailingServers = nil
	}
	r.Problems = slices.DeleteFunc(r.Problems, func(p api.Problem) bool {
		name, isService := p.Object.Service()
		return isService && !filter.Matches(name)
	})
}

// Checks are the results of the health checks of endpoints.
type Checks interface {
	Result(model.ServiceName, netip.Addr) (model.CheckResult, bool)
	// Each calls a function with every result, in no order.
	Each(func(model.ServiceName, netip.Addr, model.CheckResult))
}

type failure struct {
	service model.ServiceName
	name    string // of the Service, as text
	address netip.Addr
	result  model.CheckResult
}

// addChecks adds the sums of health checks, and a problem for each Service with
// endpoints that fail. View returns the state of a Service.
func (r *report) addChecks(now time.Time, checks Checks, view func(model.ServiceName) *model.View) {
	sums, endpoints := &api.EndpointChecks{}, make(map[model.ServiceName]int)
	var failures []failure
	checks.Each(func(name model.ServiceName, a netip.Addr, result model.CheckResult) {
		endpoints[name]++
		switch {
		case !result.Healthy:
			sums.Failing++
			failures = append(failures, failure{name, name.String(), a, result})
		case result.Since.IsZero():
			sums.Waiting++
		default:
			sums.Passing++
		}
	})
	if len(endpoints) == 0 {
		return
	}
	r.EndpointChecks, sums.Services = sums, len(endpoints)
	for name := range endpoints {
		if r.isBalance(name) {
			sums.Balances++
		}
	}
	slices.SortFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.name, b.name), a.address.Compare(b.address))
	})
	r.addFailingServers(failures, view)
	for same := range groups(failures, func(a, b *failure) bool { return a.service == b.service }) {
		name := same[0].service
		r.addServiceProblem(name, model.CheckFailing, r.failingText(now, same, endpoints[name], usesAll(view(name))))
	}
}

const maxServers = 1000

// addFailingServers adds the failing servers, the ones of the most Services first. The failures are sorted by Service.
func (r *report) addFailingServers(failures []failure, view func(model.ServiceName) *model.View) {
	servers, first := make(map[netip.Addr]*api.FailingServer), make(map[string]*failure)
	for i := range failures {
		f := &failures[i]
		isBalance := r.isBalance(f.service)
		s := servers[f.address]
		if s == nil {
			s = &api.FailingServer{Address: f.address.String(), Since: f.result.Since, ServiceText: model.ServiceText{Service: f.name, Balance: isBalance}, Message: f.result.Why()}
			servers[f.address], first[s.Address] = s, f
		}
		s.Services++
		if isBalance {
			s.Balances++
		}
		if f.result.Since.Before(s.Since) {
			s.Since = f.result.Since
		}
	}
	all := slices.SortedFunc(maps.Values(servers), func(a, b *api.FailingServer) int {
		return cmp.Or(cmp.Compare(b.Services, a.Services), cmp.Compare(a.Address, b.Address))
	})
	for _, s := range all[:min(len(all), maxServers)] {
		f := first[s.Address]
		if v := view(f.service); v != nil {
			s.Name = v.Service.NameOf(f.address)
		}
		r.FailingServers = append(r.FailingServers, *s)
	}
}

// groups yields the longest parts of a slice whose items are the same as the one before.
func groups[T any](all []T, same func(a, b *T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for begin, i := 0, 0; i < len(all); begin = i {
			for i++; i < len(all) && same(&all[i-1], &all[i]); i++ {
			}
			if !yield(all[begin:i]) {
				return
			}
		}
	}
}

func usesAll(v *model.View) bool {
	return v != nil && v.Service.Check != nil && v.Service.Check.AllFailing == model.UseAll
}

// failingText returns for example "2 of 3 endpoints fail their health check, such as 10.0.0.3:
// connect: refused, for 2m0s".
func (r *report) failingText(now time.Time, failing []failure, all int, usesAll bool) string {
	in, n, first := r.wordsFor(failing[0].service), len(failing), failing[0]
	what, then := in.Sprintf("%d of %d endpoints fail their health check, such as %s", n, all, first.address), ""
	switch {
	case all == 1:
		what = in.Sprintf("health check of its only endpoint, %s, fails", first.address)
	case n == 1:
		what = fmt.Sprintf("health check of %s fails", first.address)
	case n == all && all == 2:
		what = in.Sprintf("both endpoints fail their health check, such as %s", first.address)
	case n == all:
		what = in.Sprintf("all %d endpoints fail their health check, such as %s", all, first.address)
	}
	switch {
	case n == all && usesAll:
		then = "; connections go there all the same"
	case n == all:
		then = "; connections are rejected"
	}
	return fmt.Sprintf("%s: %s, for %s%s", what, first.result.Why(), now.Sub(first.result.Since).Round(time.Second), then)
}

func addFailing(d *api.LiveDetail, checks Checks, service model.ServiceName) {
	var all []failure
	checks.Each(func(name model.ServiceName, a netip.Addr, r model.CheckResult) {
		if name == service && !r.Healthy {
			all = append(all, failure{address: a, result: r})
		}
	})
	slices.SortFunc(all, func(a, b failure) int { return a.address.Compare(b.address) })
	d.FailingCount = len(all)
	for _, f := range all[:min(len(all), maxFailing)] {
		d.Failing = append(d.Failing, api.FailingEndpoint{Address: f.address.String(), Message: f.result.Why(), Since: f.result.Since})
	}
}
