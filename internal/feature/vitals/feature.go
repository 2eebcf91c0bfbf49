package vitals

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

type Kind struct {
	Links Links // nil: the kernel's
}

// New implements [feature.Kind]. Programs run as root: only the operator, who starts nftproxy, names one.
func (k Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	if k.Links == nil {
		k.Links = host.Neighbourhood{Log: n.Log}
	}
	return newActor(n, ofNode{n}, k.Links)
}

// FollowSync implements [feature.Observer]: it notes the Balances that a sync changes. All of them are new in the first one.
func (a *Actor) FollowSync(s *feature.Sync) {
	if s.Err != nil {
		return
	}
	note := func(r *model.Route) bool {
		if r != nil && a.isVital(r.Service) {
			a.Note(r.Service.Name)
		}
		return true
	}
	first := !a.assessed
	if first {
		a.assessed = true
		a.node.Serving().Routes(note)
	}
	for i := range s.Routes {
		note(s.Routes[i].Old)
		note(s.Routes[i].New)
	}
	a.request(first)
	if keeps := a.balances.Kept(); s.Compared || keeps != a.kept {
		a.kept = keeps
		a.Compare()
	}
}

// isVital reports whether something is to be done about the state of a Service.
func (a *Actor) isVital(s *model.Service) bool {
	return s.Balance && (a.directory != "" || a.program != "" || s.Extra().Announce != "")
}

// ofNode are the Balances of a node.
type ofNode struct{ *feature.Node }

func (n ofNode) Kept() bool { return len(n.Serving().Kept()) > 0 }

func (ofNode) Run(ctx context.Context, program string, env []string) error {
	return checker.RunProgram(ctx, []string{program}, env)
}

func (n ofNode) Assess(name model.ServiceName) (s State, service *model.Service) {
	v := n.Serving().View(name)
	if v == nil || !v.Service.Balance {
		return State{}, nil
	}
	if c := feature.Find[model.CheckResults](n.Features); c != nil {
		v.Checks = c
	}
	state := stateOf(v)
	r := feature.Find[relay](n.Features)
	for _, c := range v.Claims {
		if r != nil && c.Route.Relayed() && r.Failure(model.FamilyOf(c.Route.Frontend.Address)) != "" {
			state.Usable = 0 // the relay cannot accept its connections
		}
	}
	return state, v.Service
}

// relay says why connections of a family are not relayed; empty: they are.
type relay interface{ Failure(model.Family) string }

// Serves reports whether a Balance has a usable server, and its announced addresses are on the machine, for /healthz/NAMESPACE/NAME; known is false
// if there is none of this name.
func (a *Actor) Serves(name model.ServiceName) (usable, known bool) {
	s, balance := a.balances.Assess(name)
	return s.Usable > 0 && a.node.Serving().Begun() && !a.addresses.lacks(s), balance != nil
}
