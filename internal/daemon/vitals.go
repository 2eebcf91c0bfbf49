package daemon

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/feature/vitals"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// newVitals returns what acts on the states of Balances; nil: there are none. Programs run as root:
// only the operator, who starts nftproxy, names one.
func (w *work) newVitals() *vitals.Actor {
	if w.Cluster != nil && w.Joined == nil {
		return nil
	}
	own := &w.Config.Own
	if own.HealthDirectory != "" {
		w.left.HealthDirectory(own.HealthDirectory)
	}
	return vitals.New(vitals.Config{
		Directory: own.HealthDirectory, Program: own.OnChange, Assess: w.vital, Log: w.Log,
		Links: host.Neighbourhood{Log: w.Log}, Keeps: w.keepsServices, Record: vitals.RecordIn(w.RuntimeDirectory), Interval: own.AnnounceInterval,
		Run: func(ctx context.Context, program string, env []string) error {
			return checker.RunProgram(ctx, []string{program}, env)
		},
	})
}

// followVitals notes the Balances that a sync changes. All of them are new in the first one.
func (w *work) followVitals(s *agent.Sync) {
	if s.Err != nil {
		return
	}
	var found map[model.ServiceName]struct{} // most often there are none
	note := func(r *model.Route) bool {
		if r != nil && w.isVital(r.Service) {
			if found == nil {
				found = make(map[model.ServiceName]struct{})
			}
			found[r.Service.Name] = struct{}{}
		}
		return true
	}
	request := w.vitals.Synced
	if !w.assessed {
		w.assessed = true
		request = w.vitals.Begin
		w.agent.Routes(note)
	}
	for i := range s.Routes {
		note(s.Routes[i].Old)
		note(s.Routes[i].New)
	}
	request(slices.Collect(maps.Keys(found))...)
	if keeps := w.keepsServices(); s.Compared || keeps != w.kept {
		w.kept = keeps
		w.vitals.Compare()
	}
}

// keepsServices reports whether Services are served as an earlier run left them.
func (w *work) keepsServices() bool { return len(w.agent.Kept()) > 0 }

// isVital reports whether something is to be done about the state of a Service.
func (w *work) isVital(s *model.Service) bool {
	own := &w.Config.Own
	return s.Balance && (own.HealthDirectory != "" || own.OnChange != "" || s.Extra().Announce != "")
}

// vital is assess for Balances about which something is to be done.
func (w *work) vital(name model.ServiceName) (vitals.State, bool) {
	if v := w.agent.View(name); v == nil || !w.isVital(v.Service) {
		return vitals.State{}, false
	}
	return w.assess(name)
}

// assess returns how many servers of a Balance are usable; false: there is no Balance.
func (w *work) assess(name model.ServiceName) (vitals.State, bool) {
	v := w.agent.View(name)
	if v == nil || !v.Service.Balance {
		return vitals.State{}, false
	}
	v.Checked = func(a netip.Addr) (model.CheckResult, bool) { return w.checks.Result(name, a) }
	state := vitals.StateOf(v)
	if slices.ContainsFunc(v.Claims, w.refused) {
		state.Usable = 0
	}
	return state, true
}

// refused reports whether a frontend is relayed, and the relay cannot accept its connections.
func (w *work) refused(c model.ViewedClaim) bool {
	return w.relay != nil && c.Route.Relayed() && w.relay.Failure(model.FamilyOf(c.Route.Frontend.Address)) != ""
}

// relayChanged assesses relayed Balances again.
func (w *work) relayChanged(names ...model.ServiceName) {
	if w.vitals != nil {
		w.vitals.Synced(names...)
	}
}

// serving answers whether a Balance has a usable server, and its announced addresses are on the machine, for /healthz/NAMESPACE/NAME; known is false
// if there is none of this name.
func (w *work) serving(name model.ServiceName) (usable, known bool) {
	s, known := w.assess(name)
	return s.Usable > 0 && !w.agent.State().LastSync.IsZero() && !w.vitals.Lacks(s), known
}
