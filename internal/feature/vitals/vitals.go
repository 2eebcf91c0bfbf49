// Package vitals acts on whether Balances have a usable server: it keeps a file for each of them,
// for keepalived and others, runs a program when that changes, and has addresses on interfaces
// while there is one.
package vitals

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// State is how many servers of a Balance are usable.
type State struct {
	Usable, Servers int
	// Link is the interface that has the addresses while a server is usable; empty: none.
	Link      string
	Addresses []netip.Addr
}

func (s State) serves() bool { return s.Usable > 0 }

// balances are what an actor acts on.
type balances interface {
	// Assess returns the state of a Balance; nil: there is none of this name.
	Assess(model.ServiceName) (State, *model.Service)
	// Kept reports whether rules of an earlier run stay, because a part of the source cannot be read:
	// so do its addresses then.
	Kept() bool
	// Run runs a program with these variables; its error says why it failed.
	Run(ctx context.Context, program string, env []string) error
}

// Actor acts on states. Its methods are safe for concurrent use.
type Actor struct {
	node     *feature.Node
	balances balances
	// directory has a file for each Balance; empty: there are no files. Files of its form that an
	// earlier run has left are removed.
	directory string
	program   string // is run at the start, and when a Balance gains or loses its last usable server
	wake      chan struct{}
	compares  atomic.Bool // files are to be compared

	mu      sync.Mutex
	pending map[model.ServiceName]struct{}
	synced  map[model.ServiceName]struct{} // pending ones that the rules have
	begun   bool                           // all Balances have been noted

	// The following are of FollowSync.
	assessed bool // it has seen all Services
	kept     bool // Services of an earlier run were kept in the last sync

	// The following are of Run.
	known     map[model.ServiceName]bool // whether a server is usable
	addresses *keeper
	unwritten map[model.ServiceName]string // errors of files, logged once
	pause     <-chan time.Time             // until what has failed is tried again
	programs  sync.WaitGroup
	slots     chan struct{} // one for each program that runs

	hooks sync.Mutex
	wants map[model.ServiceName]told // what a program is to be told; it runs for these
}

// told is what a program is told.
type told struct{ usable, servers int }

// newActor returns an actor that keeps addresses on links.
func newActor(n *feature.Node, b balances, links Links) *Actor {
	return &Actor{
		node: n, balances: b, directory: n.Config.Own.HealthDirectory, program: n.Config.Own.OnChange,
		wake: make(chan struct{}, 1), pending: make(map[model.ServiceName]struct{}), synced: make(map[model.ServiceName]struct{}), addresses: newKeeper(n, b, links),
		known: make(map[model.ServiceName]bool), unwritten: make(map[model.ServiceName]string), slots: make(chan struct{}, budget.ChangePrograms), wants: make(map[model.ServiceName]told),
	}
}

// Note notes Services whose servers have changed: the next sync has it in the rules.
func (a *Actor) Note(names ...model.ServiceName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		a.pending[name] = struct{}{}
	}
}

// Synced requests to act on the Services that were noted so far, and on others.
func (a *Actor) Synced(names ...model.ServiceName) {
	a.Note(names...)
	a.request(false)
}

// request requests to act; begin: all Balances that there are at the start have been noted.
func (a *Actor) request(begin bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 && !begin {
		return
	}
	a.begun = a.begun || begin
	maps.Copy(a.synced, a.pending)
	clear(a.pending)
	parallel.Signal(a.wake)
}

// Compare has addresses on interfaces and files compared with what Balances want.
func (a *Actor) Compare() {
	a.compares.Store(true)
	a.addresses.compare()
}

// Run acts until ctx ends. It kills the programs that still run.
func (a *Actor) Run(ctx context.Context) {
	defer a.programs.Wait()
	a.addresses.ctx = ctx
	if a.directory != "" {
		a.node.Machine.NoteHealthDirectory(a.directory)
	}
	if err := a.prepare(); err != nil {
		a.node.Log.Error("files about Balances cannot be written", "directory", a.directory, "error", err)
	}
	for swept := false; ; {
		var due <-chan time.Time
		if wait := a.addresses.next(time.Now()); wait >= 0 {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-a.again():
			a.retry()
			continue
		case <-a.addresses.changed:
			a.addresses.step(time.Now())
			if a.compares.Swap(false) {
				a.restore()
			}
			continue
		case <-due:
			a.addresses.step(time.Now())
			continue
		}
		begun := a.actOnSynced(ctx)
		if begun && !swept {
			swept = true
			a.sweep()
			a.addresses.begin()
		}
	}
}

// actOnSynced acts on the Balances that syncs have changed, and reports whether these were all of them
// once.
func (a *Actor) actOnSynced(ctx context.Context) (begun bool) {
	a.mu.Lock()
	names := maps.Clone(a.synced)
	clear(a.synced)
	begun = a.begun
	a.mu.Unlock()
	for name := range names {
		a.act(ctx, name)
	}
	return begun
}

// again returns a channel that has a value after a pause, if something has failed. Syncs that come
// in between do not make the pause longer.
func (a *Actor) again() <-chan time.Time {
	switch {
	case len(a.unwritten) == 0:
		a.pause = nil
	case a.pause == nil:
		a.pause = time.After(retryPause)
	}
	return a.pause
}

// retry tries what has failed again.
func (a *Actor) retry() {
	a.pause = nil
	for name := range a.unwritten {
		a.record(name)
	}
}

func (a *Actor) act(ctx context.Context, name model.ServiceName) {
	state, service := a.balances.Assess(name)
	exists := service != nil && a.isVital(service)
	if !exists {
		state = State{}
	}
	a.addresses.hold(name, state)
	before, known := a.known[name]
	if !exists && known {
		delete(a.known, name)
		a.record(name)
	}
	if !exists || known && before == state.serves() {
		return
	}
	a.known[name] = state.serves()
	if known {
		a.node.Log.Info("a Balance has changed its state", "object", name.BalanceObject().String(), "usable", state.Usable, "servers", state.Servers)
	}
	a.record(name)
	if a.program != "" {
		a.tell(ctx, name, state)
	}
}

// programTimeout is how long a program may run.
const programTimeout = 30 * time.Second

// tell runs the program for a state. While it runs for a Balance, it is not started again for the
// same one: it gets the last state afterwards.
func (a *Actor) tell(ctx context.Context, name model.ServiceName, s State) {
	a.hooks.Lock()
	defer a.hooks.Unlock()
	_, running := a.wants[name]
	if a.wants[name] = (told{s.Usable, s.Servers}); running {
		return
	}
	a.programs.Go(func() {
		for last := (told{-1, 0}); ; {
			a.hooks.Lock()
			now := a.wants[name]
			if now == last || ctx.Err() != nil {
				delete(a.wants, name)
				a.hooks.Unlock()
				return
			}
			a.hooks.Unlock()
			a.run(ctx, name, now)
			last = now
		}
	})
}

func (a *Actor) run(ctx context.Context, name model.ServiceName, now told) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return
	}
	state := "unusable"
	if now.usable > 0 {
		state = "usable"
	}
	env := []string{"NFTPROXY_SERVICE=" + name.String(), "NFTPROXY_STATE=" + state, fmt.Sprintf("NFTPROXY_USABLE=%d", now.usable), fmt.Sprintf("NFTPROXY_SERVERS=%d", now.servers)}
	limited, cancel := context.WithTimeoutCause(ctx, programTimeout, fmt.Errorf("not finished after %s", programTimeout))
	defer cancel()
	err := a.balances.Run(limited, a.program, env)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.node.Log.Error("the program for a change of a Balance failed", "object", name.BalanceObject().String(), "state", state, "error", err)
	default:
		a.node.Log.Info("the program for a change of a Balance ran", "object", name.BalanceObject().String(), "state", state)
	}
}

// Announced returns the addresses that Balances ask for, and whether clients can reach them here.
func (a *Actor) Announced() []model.AnnouncedAddress { return a.addresses.announced() }

// Problems implements [feature.Reporter]: it says which addresses are not where they should be, and why.
func (a *Actor) Problems(time.Time) []model.Notice { return a.addresses.problems() }
