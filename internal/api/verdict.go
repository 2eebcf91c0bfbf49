package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// State is how well something is served.
type State uint8

// States.
const (
	StateServing State = iota
	StateDegraded
	StateFailing
)

// Verdict is a state, with the reason in words.
type Verdict struct {
	State State
	Text  string
}

// Verdict is the answer to "what is wrong?".
func (r *Status) Verdict() Verdict {
	problems := terminal.Count(r.causes(), "problem")
	switch n := len(r.Problems); {
	case r.From == FromDaemon && !r.Healthy && n == 0:
		return Verdict{StateFailing, "unhealthy"}
	case r.From == FromDaemon && !r.Healthy:
		return Verdict{StateFailing, "unhealthy: " + problems}
	case n > 0 && r.From == FromDaemon:
		return Verdict{StateDegraded, "healthy, but " + problems}
	case n > 0:
		return Verdict{StateDegraded, problems}
	case r.From == FromDaemon:
		return Verdict{StateServing, "healthy"}
	}
	return Verdict{StateServing, "no problems"}
}

// IsGrouped reports whether the problems of health checks are shown by server, because
// fewer servers fail than Services have problems.
func (r *Status) IsGrouped() bool {
	return len(r.FailingServers) > 0 && len(r.FailingServers) < r.ProblemCounts[model.CheckFailing]
}

// causes returns the number of problems that are shown.
func (r *Status) causes() int {
	n := len(r.Problems)
	if r.IsGrouped() {
		n -= r.ProblemCounts[model.CheckFailing] - len(r.FailingServers)
	}
	return n
}

// Verdict counts hosts: one that serves several ports counts once.
func (s *Description) Verdict() Verdict {
	serving, all := make(map[string]bool), make(map[string]bool)
	var failing []string
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, e := range port.Endpoints {
			all[e.Host()] = true
			if e.Inside.Part > 0 || e.Outside != nil && e.Outside.Part > 0 {
				serving[e.Host()] = true
			}
		}
		failing = append(failing, port.notForwarded()...)
	}
	text, state := s.Words().Sprintf("%d of %d endpoints take connections", len(serving), len(all)), StateDegraded
	switch {
	case len(all) == 0:
		text, state = s.Words().Text("no endpoints"), StateFailing
	case len(serving) == 0:
		state = StateFailing
	case len(serving) == len(all):
		state = StateServing
		text = s.Words().Sprintf("%d endpoints take connections", len(all))
		if len(all) == 1 {
			text = s.Words().Text("1 endpoint takes connections")
		}
	}
	if len(s.RelayFailures) > 0 {
		return Verdict{StateFailing, "connections are refused: " + strings.Join(s.RelayFailures, "; ")}
	}
	if len(failing) > 0 {
		text, state = text+"; "+strings.Join(failing, "; "), StateFailing
	}
	return Verdict{state, text}
}

func (p *DescribedPort) notForwarded() (out []string) {
	name := "connections"
	if p.Name != "" {
		name += fmt.Sprintf(" to port %q", p.Name)
	}
	for _, f := range p.Frontends {
		text := ""
		switch {
		case f.ServedBy != "":
			text = f.Address + " is served by " + f.ServedBy
		case f.Inside == model.Reject.String():
			text = name + " are rejected"
		case f.Inside == model.Drop.String():
			text = name + " are dropped"
		case f.Outside == model.Drop.String():
			text = name + " from outside are dropped"
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
