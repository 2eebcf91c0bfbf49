package vitals

import (
	"context"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Programs run as root: only the operator, who starts nftproxy, names one.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	own := &n.Config.Own
	a := &acting{node: n}
	a.Actor = New(Config{
		Directory: own.HealthDirectory, Program: own.OnChange, Assess: a.vital, Log: n.Log,
		Links: host.Neighbourhood{Log: n.Log}, Keeps: a.keepsServices, Record: RecordIn(n.RuntimeDirectory), Interval: own.AnnounceInterval,
		Run: func(ctx context.Context, program string, env []string) error {
			return checker.RunProgram(ctx, []string{program}, env)
		},
	})
	return a
}

type acting struct {
	*Actor
	node     *feature.Node
	assessed bool // it has seen all Services
	kept     bool // Services of an earlier run were kept in the last sync
}

// Run implements [feature.Runner].
func (a *acting) Run(ctx context.Context) {
	if a.Directory != "" {
		a.node.NoteHealthDirectory(a.Directory)
	}
	a.Actor.Run(ctx)
}

// FollowSync implements [feature.Observer]: it notes the Balances that a sync changes. All of them are new in the first one.
func (a *acting) FollowSync(s *feature.Sync) {
	if s.Err != nil {
		return
	}
	note := func(r *model.Route) bool {
		if r != nil && a.isVital(r.Service) {
			a.Note(r.Service.Name)
		}
		return true
	}
	request := a.Synced
	if !a.assessed {
		a.assessed = true
		request = a.Begin
		a.node.Serving().Routes(note)
	}
	for i := range s.Routes {
		note(s.Routes[i].Old)
		note(s.Routes[i].New)
	}
	request()
	if keeps := a.keepsServices(); s.Compared || keeps != a.kept {
		a.kept = keeps
		a.Compare()
	}
}

// keepsServices reports whether Services are served as an earlier run left them.
func (a *acting) keepsServices() bool { return len(a.node.Serving().Kept()) > 0 }

// isVital reports whether something is to be done about the state of a Service.
func (a *acting) isVital(s *model.Service) bool {
	own := &a.node.Config.Own
	return s.Balance && (own.HealthDirectory != "" || own.OnChange != "" || s.Extra().Announce != "")
}

// vital is assess for Balances about which something is to be done.
func (a *acting) vital(name model.ServiceName) (State, bool) {
	if v := a.node.Serving().View(name); v == nil || !a.isVital(v.Service) {
		return State{}, false
	}
	return a.assess(name)
}

// assess returns how many servers of a Balance are usable; false: there is no Balance.
func (a *acting) assess(name model.ServiceName) (State, bool) {
	v := a.node.Serving().View(name)
	if v == nil || !v.Service.Balance {
		return State{}, false
	}
	if c := feature.Find[checks](a.node.Features); c != nil {
		v.Checked = func(a netip.Addr) (model.CheckResult, bool) { return c.Result(name, a) }
	}
	state := stateOf(v)
	r := feature.Find[relay](a.node.Features)
	for _, c := range v.Claims {
		if r != nil && c.Route.Relayed() && r.Failure(model.FamilyOf(c.Route.Frontend.Address)) != "" {
			state.Usable = 0 // the relay cannot accept its connections
		}
	}
	return state, true
}

// checks have the health of endpoints.
type checks interface {
	Result(model.ServiceName, netip.Addr) (model.CheckResult, bool)
}

// relay says why connections of a family are not relayed; empty: they are.
type relay interface{ Failure(model.Family) string }

// Serves reports whether a Balance has a usable server, and its announced addresses are on the machine, for /healthz/NAMESPACE/NAME; known is false
// if there is none of this name.
func (a *acting) Serves(name model.ServiceName) (usable, known bool) {
	s, known := a.assess(name)
	return s.Usable > 0 && a.node.Serving().Begun() && !a.Lacks(s), known
}
