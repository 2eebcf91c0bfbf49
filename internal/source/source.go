// Package source is the interface between the sources of objects and the program.
//
// A [Source] gives the Services, endpoints and Nodes that are served, and says by its
// [State] whether it can be used now. [Edited] changes the state of Services from a source,
// for health checks and draining. The packages below are, from the bottom up:
//
//   - healthcheck: a value of YAML or JSON becomes a health check
//   - convert: objects of Kubernetes become values of the model
//   - balance: a Balance becomes objects of Kubernetes
//   - files: a source that reads YAML and JSON
//   - cluster: a source that follows an API server
//   - join: both, for the address of the API servers themselves
//
// Statement numbers such as 1.33 in comments refer to docs/behaviour.md.
package source

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Source is where the objects come from: a [cluster.Cluster], or files that are followed ([files.Follow]).
type Source interface {
	// String names the source in status.
	String() string
	// Run follows the source until ctx ends, and calls changed whenever Load has
	// something new. It is called once, before the Await methods.
	Run(ctx context.Context, changed func()) error
	// AwaitNode returns when the Node is known as far as the start depends on it (12.45 to 12.47).
	AwaitNode(ctx context.Context) error
	// Await returns when Load may be called.
	Await(ctx context.Context) error
	// Load returns the changes since the last call. An update beside an error has the
	// changes that do not depend on the unreadable part.
	Load() (*model.Update, error)
	// Lookup returns the present states of these Services, or of all if names is nil,
	// without those that the source does not have. Load has been called before.
	Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState
	// Node returns the Node as it was seen last, or nil.
	Node() *model.Node
	// State reports whether the source can be used now. It is safe for concurrent use.
	State() State
}

// State reports whether a source can be used.
type State struct {
	// Err is why the source, or a part of it, cannot be used now; nil: it can. What was read before stays in use.
	Err error
	// Since is when the source became unusable, or usable again.
	Since time.Time
	// Warnings are about objects that are used, but not as their author may
	// expect; the first ones, if there are many.
	Warnings []string
	// Warned is how many warnings there are.
	Warned int
	// LastSuccess is when the source was read last; zero: never. An API server
	// counts as read at each list, watch and event.
	LastSuccess time.Time
	// Failures is how many attempts to read the source have failed.
	Failures uint64
}

// Editor changes the state of Services from a source, for reasons that the source does not know: health checks,
// draining. Editors of one source are called one after the other, each with the result of the one before.
type Editor interface {
	// Run works until ctx ends. It calls changed with the names of Services that Edit
	// treats in another way now, and without a name if that may be any.
	Run(ctx context.Context, changed func(...model.ServiceName))
	// Edit returns the state to serve in place of the given one, which it must not modify.
	// It is called for new and deleted Services (with a nil Service), for names passed to
	// changed, and for lookups; by one goroutine at a time, beside Run.
	Edit(model.ServiceName, model.ServiceState) model.ServiceState
}

// Awaiter is an [Editor] that needs to prepare before the first rules: for example to check the health of endpoints
// once, so that a restart uses none that is known to fail.
type Awaiter interface {
	Editor
	// Await is called after Edit for all Services, beside Run. It returns soon: no
	// rules are made before. The error is the one of ctx, if that has ended.
	Await(ctx context.Context) error
}

// Edited returns the source with its Services as the editors change them. It holds no
// objects: states that an editor asks for again come from the source.
func Edited(s Source, editors ...Editor) Source {
	if len(editors) == 0 {
		return s
	}
	return &edited{Source: s, editors: editors, unread: true, touched: make(map[model.ServiceName]struct{})}
}

// Reload makes the next Load read a source again, even if nothing is known to have
// changed. Sources that need to be told have a method of this name.
func Reload(s Source) {
	if r, ok := s.(interface{ Reload() }); ok {
		r.Reload()
	}
}

type edited struct {
	Source
	editors []Editor

	mu      sync.Mutex                     // guards what follows
	unread  bool                           // the source has something new
	pending map[model.ServiceName]struct{} // whose edits have changed
	every   bool                           // the edits of any Service may have changed

	// The following are of the goroutine that calls Await and Load.
	early *model.Update // read before the first Load, not edited
	last  *model.Update // without Services
	err   error         // of the last attempt to load the source
	// touched are the Services whose last state was edited.
	touched map[model.ServiceName]struct{}
}

// Run implements [Source]. The editors end with the source.
func (e *edited) Run(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, editor := range e.editors {
		all.Go(func() {
			editor.Run(ctx, func(names ...model.ServiceName) {
				e.note(names)
				changed()
			})
		})
	}
	return e.Source.Run(ctx, func() {
		e.sourceChanged()
		changed()
	})
}

// Reload makes the next Load read the source again.
func (e *edited) Reload() {
	Reload(e.Source)
	e.sourceChanged()
}

func (e *edited) sourceChanged() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unread = true
}

func (e *edited) note(names []model.ServiceName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.every = e.every || len(names) == 0; e.every {
		e.pending = nil
		return
	}
	if e.pending == nil {
		e.pending = make(map[model.ServiceName]struct{}, len(names))
	}
	for _, name := range names {
		e.pending[name] = struct{}{}
	}
}

func (e *edited) take() (pending map[model.ServiceName]struct{}, every bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pending, every = e.pending, e.every
	e.pending, e.every = nil, false
	return pending, every
}

// Await implements [Source]. It shows the Services to the editors that prepare.
func (e *edited) Await(ctx context.Context) error {
	if err := e.Source.Await(ctx); err != nil {
		return err
	}
	var prepare []Awaiter
	for _, editor := range e.editors {
		if a, ok := editor.(Awaiter); ok {
			prepare = append(prepare, a)
		}
	}
	if len(prepare) == 0 {
		return nil
	}
	e.early = e.read()
	if e.early != nil {
		for name, state := range e.early.Services {
			e.edit(name, state)
		}
	}
	for _, a := range prepare {
		if err := a.Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// read returns the changes of the source, or nil. It notes the error.
func (e *edited) read() *model.Update {
	e.mu.Lock()
	unread := e.unread
	e.unread = false
	e.mu.Unlock()
	u := e.early
	e.early = nil
	if !unread {
		return u
	}
	next, err := e.Source.Load()
	if e.err = err; next != nil {
		u = u.Then(next)
	}
	return u
}

// Load implements [Source]. While the source cannot be used, the edits of what was
// read before are returned beside the error.
func (e *edited) Load() (*model.Update, error) {
	pending, every := e.take()
	u := e.read()
	if u != nil {
		e.last = &model.Update{Nodes: u.Nodes, ServiceCIDRs: u.ServiceCIDRs, Partial: u.Partial}
	}
	switch {
	case u != nil:
	case e.last != nil && (every || len(pending) > 0):
		u = e.last
	default:
		return nil, e.err
	}
	edits := make(map[model.ServiceName]model.ServiceState)
	for name, state := range u.Services {
		if now, differs := e.edit(name, state); differs {
			edits[name] = now
		}
		delete(pending, name)
	}
	e.again(u, pending, every, edits)
	if len(edits) == 0 {
		return u, e.err
	}
	out := *u
	out.Services = make(map[model.ServiceName]model.ServiceState, len(u.Services)+len(edits))
	maps.Copy(out.Services, u.Services)
	maps.Copy(out.Services, edits)
	return &out, e.err
}

func (e *edited) Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState {
	states := e.Source.Lookup(names)
	out := make(map[model.ServiceName]model.ServiceState, len(states))
	for name, state := range states {
		out[name], _ = e.edit(name, state)
	}
	return out
}

// again adds the Services that are not in the update, and that the editors treat in another way now: these, or any.
func (e *edited) again(u *model.Update, pending map[model.ServiceName]struct{}, every bool, edits map[model.ServiceName]model.ServiceState) {
	switch {
	case every:
		for name, state := range e.Source.Lookup(nil) {
			if _, known := u.Services[name]; known {
				continue
			}
			if now, differs := e.edit(name, state); differs {
				edits[name] = now
			}
		}
	case len(pending) > 0:
		states := e.Source.Lookup(slices.Collect(maps.Keys(pending)))
		for name := range pending {
			edits[name], _ = e.edit(name, states[name])
		}
	}
}

// edit runs the editors on a state. differs reports whether the result may differ from
// the last one for an unchanged state.
func (e *edited) edit(name model.ServiceName, state model.ServiceState) (now model.ServiceState, differs bool) {
	now = state
	for _, editor := range e.editors {
		now = editor.Edit(name, now)
	}
	_, before := e.touched[name]
	if now.Service == state.Service && slices.Equal(now.Slices, state.Slices) {
		delete(e.touched, name)
		return now, before
	}
	e.touched[name] = struct{}{}
	return now, true
}
