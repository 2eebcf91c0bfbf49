package report

import (
	"fmt"
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
		r.Problems = append(r.Problems, api.Problem{Object: api.Object{Kind: kind, Name: name}, Reason: reason, Message: fmt.Sprintf(format, args...)})
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

// affected returns the objects that have a problem or a note.
func (r *report) affected() map[api.Object]bool {
	out := make(map[api.Object]bool)
	for _, list := range [][]api.Problem{r.Problems, r.Notes} {
		for _, p := range list {
			out[p.Object] = true
		}
	}
	return out
}

// selectProblems removes problems of Services that a filter does not select.
func (r *report) selectProblems(filter *api.Filter) {
	if filter.Selects() {
		r.FailingServers = nil
	}
	r.Problems = slices.DeleteFunc(r.Problems, func(p api.Problem) bool {
		name, isService := p.Object.Service()
		return isService && !filter.Matches(name)
	})
}
