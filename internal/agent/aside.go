package agent

import (
	"errors"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// compare brings the kernel to all that the router says. Services that the
// kernel refuses are set aside: they go back to what was good, so that the
// kernel is at what the router says in any case.
func (a *Agent) compare(s *Sync) error {
	a.composer = nil
	changes := s.Routes
	s.Whole, s.Routes = true, nil
	s.Interventions = a.drift.take()
	for {
		routing := a.router.Routing()
		s.Rules = render.Render(routing)
		plan, err := a.Applier.ApplyMost(s.Rules, withOld(routing.Routes, changes))
		s.Plan = s.Plan.Then(plan)
		var refused *apply.RefusedError
		switch {
		case err == nil:
			a.composer, a.compared = render.NewComposer(routing), time.Now()
			return nil
		case !errors.As(err, &refused) || !a.setAside(refused):
			s.Plan = nil
			return err
		}
	}
}

// setAside goes back to what was good of the Services that the kernel refuses.
// It returns false if that changes nothing.
func (a *Agent) setAside(e *apply.RefusedError) (changed bool) {
	a.routing.Lock()
	defer a.routing.Unlock()
	for _, r := range e.Refusals {
		changed = a.router.SetAside(r.Service, r.Err.Error()) || changed
	}
	return changed
}

// accept takes what the router says as good: the kernel has it.
func (a *Agent) accept() {
	a.routing.Lock()
	defer a.routing.Unlock()
	a.router.Accept()
}

// tryAgain returns whether Services were set aside, after bringing them to what
// the source says.
func (a *Agent) tryAgain() bool {
	a.routing.Lock()
	defer a.routing.Unlock()
	if a.router.Aside() == 0 {
		return false
	}
	a.router.TryAgain()
	return true
}

// withOld adds the routes that frontends had before changes.
func withOld(routes []model.Route, changes []model.RouteChange) []model.Route {
	for i := range changes {
		if old := changes[i].Old; old != nil {
			routes = append(routes, *old)
		}
	}
	return routes
}
