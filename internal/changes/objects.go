package changes

import (
	"sync"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Side is an input and the routing that follows from it.
type Side struct {
	Snapshot *model.Snapshot
	Routing  *model.Routing
}

func (s *Side) ownNode() *model.Node {
	node, _ := s.Snapshot.Node(s.Routing.NodeName)
	return node
}

// Objects compares two inputs: what clients notice, and what else the objects of a Service
// say, which may matter later. The cost grows with the number of routes.
func Objects(before, after Side) []Service {
	c := newComparison()
	c.edits = newEdits(before.Snapshot, after.Snapshot)
	for _, states := range []map[model.ServiceName]model.ServiceState{c.edits.before, c.edits.after} {
		for name, state := range states {
			c.isBalance[name] = state.Service.Balance
		}
	}
	c.stateBefore, c.stateAfter = newStateLookup(before.Snapshot), newStateLookup(after.Snapshot)
	c.edits.nodeBefore, c.edits.nodeAfter = before.ownNode(), after.ownNode()
	was, is := before.Routing.Routes, after.Routing.Routes
	for len(was) > 0 || len(is) > 0 {
		change := model.RouteChange{}
		order := 0
		switch {
		case len(was) == 0:
			order = 1
		case len(is) == 0:
			order = -1
		default:
			order = was[0].Frontend.Compare(is[0].Frontend)
		}
		if order <= 0 {
			change.Old, was = &was[0], was[1:]
			c.countRoute(change.Old, 1, 0)
		}
		if order >= 0 {
			change.New, is = &is[0], is[1:]
			c.countRoute(change.New, 0, 1)
		}
		c.edits.noteUse(change)
		if change.Differs() || otherPolicy(change) {
			c.add(pair{ofRoute(change.Old, before.Routing), ofRoute(change.New, after.Routing)})
		}
	}
	return c.listServices()
}

// countRoute counts a route, and remembers what its Service comes from: the snapshots may lack it.
func (c *comparison) countRoute(r *model.Route, before, after int) {
	c.count(r.Service.Name, before, after)
	c.isBalance[r.Service.Name] = r.Service.Balance
}

// otherPolicy reports whether the internal policy changes, perhaps without an effect on the
// present endpoints.
func otherPolicy(c model.RouteChange) bool {
	return c.Old != nil && c.New != nil && c.Old.Service.InternalPolicy != c.New.Service.InternalPolicy
}

// condition is why an endpoint takes no new connections; empty: it is not there.
type condition string

const (
	notReady    condition = "not ready"
	terminating condition = "terminating"
	drained     condition = "drained by weight 0"
	byOperator  condition = "drained by nftproxy drain"
	failing     condition = "failing its health check"
	standby     condition = "stands by"
	elsewhere   condition = "not used on this node" // because of policies or topology hints
)

// state is why an endpoint takes no new connections, and whether it still serves.
type state struct {
	why     condition
	serving bool
}

// newStateLookup returns a function that says why an endpoint that takes no connections does not. Slices are
// grouped when it is first called.
func newStateLookup(s *model.Snapshot) stateOf {
	slicesOf := sync.OnceValue(func() map[model.ServiceName][]*model.EndpointSlice { return model.GroupSlices(s.Slices) })
	return func(port model.PortName, at address) state {
		for _, e := range model.Endpoints(port, model.FamilyOf(at.Addr()), slicesOf()[port.Service]) {
			if e.Address() == at {
				return state{conditionOf(e.Host), e.Host.Serving && !e.Host.Failing}
			}
		}
		return state{}
	}
}

func conditionOf(h *model.Host) condition {
	switch {
	case h.DrainedByOperator():
		return byOperator
	case h.Drain:
		return drained
	case h.Terminating:
		return terminating
	case !h.Ready:
		return notReady
	case h.Failing:
		return failing
	case h.Priority > 0:
		return standby
	}
	return elsewhere
}
