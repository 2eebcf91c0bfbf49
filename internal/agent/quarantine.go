package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
)

// quarantine has the Services whose rules the kernel refuses (13.29). The kernel keeps what
// it has of them. What they want is neither in [Agent.rules] nor pending.
type quarantine struct {
	*lockedRouter
	agent   *Config
	pending *pending

	services map[model.ServiceName]*quarantined
	again    map[model.ServiceName]bool // the next sync tries these
	kept     render.Claims              // frontends of these that the kernel has
	foreign  bool                       // some are NodePorts at addresses that the settings do not give them

	names   []model.ServiceName // of all, sorted; guarded by routing
	notices []model.Notice      // sorted; likewise
	version uint64              // of the notices
}

// quarantined is one of these Services.
type quarantined struct {
	object model.Object
	why    error
	// served are the routes that the kernel has, as far as this process knows.
	served map[model.Frontend]*model.Route
	lost   string // why not all that the kernel had stays; empty: all does
	// refused means that the kernel does not take again what it had.
	refused bool
}

// filterChanges returns changes of routes without routes of quarantined Services, which are tried
// again.
func (q *quarantine) filterChanges(changes []model.RouteChange) []model.RouteChange {
	rest, touched := q.withoutQuarantined(changes)
	for _, name := range touched {
		q.again[name] = true
	}
	return rest
}

// withoutQuarantined returns changes without the routes of quarantined Services, and the names of
// these. A frontend that moves to a quarantined Service goes, one that moves away comes.
func (q *quarantine) withoutQuarantined(changes []model.RouteChange) (rest []model.RouteChange, touched []model.ServiceName) {
	if len(q.services) == 0 {
		return changes, nil
	}
	for _, c := range changes {
		for _, r := range []**model.Route{&c.Old, &c.New} {
			if *r != nil && q.services[(*r).Service.Name] != nil {
				touched, *r = append(touched, (*r).Service.Name), nil
			}
		}
		if c.Old != nil || c.New != nil {
			rest = append(rest, c)
		}
	}
	return rest, touched
}

// newCommentFilter returns a function that reports whether a comment names a quarantined Service of which the
// kernel keeps what it has.
func (q *quarantine) newCommentFilter() func(comment string) bool {
	names := make(map[model.ServiceName]bool, len(q.services))
	for name, s := range q.services {
		if !s.refused {
			names[name] = true
		}
	}
	return func(comment string) bool { return plan.NamesOneOf(names, comment) }
}

func (q *quarantine) recordHeld(found *served.Keeping, quarantined func(comment string) bool, beside *model.Routing) {
	q.kept, q.foreign = render.Claims{}, false
	for name, s := range q.services {
		if s.lost = found.Lost[name]; s.refused {
			s.lost = "it does not take them again"
		}
	}
	for _, f := range found.Frontends {
		if quarantined(f.Comment) {
			q.kept.Add(f.Frontend, f.Kind)
			q.foreign = q.foreign || f.Address.IsUnspecified() && !beside.Wildcards
		}
	}
	q.updateNotices()
}

// needsComparison reports whether only a comparison can carry out the pending changes: another Service takes over a frontend that
// the kernel has of a quarantined one, or one of these has addresses that the router does not know.
func (q *quarantine) needsComparison() bool {
	return q.foreign || len(q.services) > 0 && slices.ContainsFunc(q.pending.routes, func(c model.RouteChange) bool {
		return c.New != nil && q.kept.Has(c.Frontend, c.New.Kind)
	})
}

func (q *quarantine) routesOf(selects func(model.ServiceName) bool) map[model.ServiceName][]model.RouteChange {
	out := make(map[model.ServiceName][]model.RouteChange)
	add := func(f model.Frontend, r *model.Route) {
		if name := r.Service.Name; selects(name) {
			out[name] = append(out[name], model.RouteChange{Frontend: f, New: r})
		}
	}
	for r := range q.router.Each {
		add(r.Frontend, r)
	}
	for _, r := range q.router.Echoes() {
		add(model.Echo(r.Frontend.Address), r)
	}
	return out
}

func (q *quarantine) wantedRouting() *model.Routing {
	routing := q.router.Routing()
	if len(q.services) == 0 {
		return routing
	}
	var all []model.RouteChange
	for _, routes := range q.routesOf(q.isQuarantined) {
		all = append(all, routes...)
	}
	routing.Revert(all)
	return routing
}

func (q *quarantine) isQuarantined(name model.ServiceName) bool { return q.services[name] != nil }

// addRefused quarantines the Services that make the kernel refuse a change. It returns
// false if there is none, or none can be found at present. applied means that this process
// has applied rules.
func (q *quarantine) addRefused(refusal error, applied bool) bool {
	if !kernel.RefusesContent(refusal) {
		return false
	}
	t := q.newTrial(q.routesOf(func(name model.ServiceName) bool { return !q.isQuarantined(name) }))
	refused, err := t.search(t.orderNames(q.pending.routes))
	if err == nil && len(refused) == 0 && q.abandonKept() {
		return true
	}
	if err != nil || len(refused) == 0 {
		q.agent.Log.Debug("the kernel refuses no Service by itself", "refusal", refusal, "error", err)
		return false
	}
	for name, why := range refused {
		q.addService(name, why, t.routes[name], applied)
	}
	q.updateNotices()
	return true
}

// abandonKept gives up what the kernel has of quarantined Services if it does not take that again, for
// example beside a rule that changes in the same chain. It reports whether there is such a Service.
func (q *quarantine) abandonKept() (found bool) {
	held, err := q.agent.Applier.Held()
	if err != nil {
		return false
	}
	for name, s := range q.services {
		kept := served.Keep(held, func(comment string) bool { return plan.NamesOneOf(map[model.ServiceName]bool{name: true}, comment) })
		_, delta := render.StartKeeping(q.router.Base(), kept.Kept)
		if refusal, err := splitRefusal(q.agent.Applier.Check(delta.After)); !s.refused && err == nil && refusal != nil {
			s.refused, found = true, true
		}
	}
	return found
}

// addService quarantines a Service. If this process has applied rules, the kernel has the
// routes of the Service as they were before the pending changes.
func (q *quarantine) addService(name model.ServiceName, why error, routes []model.RouteChange, applied bool) {
	s := &quarantined{object: routes[0].New.Service.Object(), why: why, served: make(map[model.Frontend]*model.Route)}
	if applied {
		for _, c := range routes {
			s.served[c.Frontend] = c.New
		}
	}
	for _, c := range q.pending.routes {
		delete(s.served, c.Frontend)
		if c.Old != nil && c.Old.Service.Name == name {
			s.served[c.Frontend] = c.Old
		}
	}
	q.services[name] = s
	q.pending.routes, _ = q.withoutQuarantined(q.pending.routes)
}

// retryServices tries quarantined Services again: the changed ones, or all. It reports whether the
// kernel takes one now; then a comparison must follow, because only that knows which rules
// of it the kernel has.
func (q *quarantine) retryServices(all bool) (released bool) {
	for name := range q.services {
		if all {
			q.again[name] = true
		}
	}
	if len(q.again) == 0 {
		return false
	}
	t := q.newTrial(q.routesOf(func(name model.ServiceName) bool { return q.again[name] }))
	refused, err := t.search(t.orderNames(nil))
	if err != nil {
		q.agent.Log.Debug("quarantined Services cannot be tried at present", "error", err)
		return false
	}
	for name := range q.again {
		if why := refused[name]; why != nil {
			q.services[name].updateReason(why)
			continue
		}
		q.releaseService(name, t.routes[name])
		released = true
	}
	clear(q.again)
	q.updateNotices()
	return released
}

// updateReason takes over another reason. A Service that is refused for the same one is not
// reported again, although the refused object may have another name now.
func (q *quarantined) updateReason(why error) {
	var before, now unix.Errno
	if !errors.As(q.why, &before) || !errors.As(why, &now) || before != now {
		q.why = why
	}
}

// releaseService ends the quarantine of a Service with these routes. A frontend that it had and that
// no other Service has taken over has gone.
func (q *quarantine) releaseService(name model.ServiceName, routes []model.RouteChange) {
	served := q.services[name].served
	delete(q.services, name)
	var changes []model.RouteChange
	for _, c := range routes {
		c.Old = served[c.Frontend]
		delete(served, c.Frontend)
		changes = append(changes, c)
	}
	for f, old := range served {
		if now := q.router.Serves(f); now == nil || now.Frontend != f {
			changes = append(changes, model.RouteChange{Frontend: f, Old: old})
		}
	}
	q.pending.add(changes)
	q.agent.Log.Info("the kernel takes the rules of a quarantined Service", "service", name)
}

// Quarantined returns the Services whose rules the kernel refuses. It is safe for concurrent use.
func (a *Agent) Quarantined() []model.ServiceName {
	return readRouter(&a.lockedRouter, func(*model.Router) []model.ServiceName { return a.quarantine.names })
}

func (q *quarantine) updateNotices() {
	names := slices.SortedFunc(maps.Keys(q.services), model.ServiceName.Compare)
	var notices []model.Notice
	for _, name := range names {
		s := q.services[name]
		message := fmt.Sprintf("the kernel refuses its rules, so those that it had before stay: %v", s.why)
		if s.lost != "" {
			message = fmt.Sprintf("the kernel refuses its rules, and not all that it had before stay, because %s: %v", s.lost, s.why)
		}
		notices = append(notices, model.Notice{Object: s.object, Reason: model.Quarantined, Message: message})
	}
	if slices.Equal(q.notices, notices) {
		return
	}
	q.routing.Lock()
	defer q.routing.Unlock()
	q.names, q.notices = names, notices
	q.version++
}

// Notices returns the notices of the router, and those about Services that the kernel serves as
// before. They are valid as long as Router.
func (s *Sync) Notices() []model.Notice { return slices.Concat(s.Router.Notices(), s.asBefore) }
