// Package vitals acts on whether Balances have a usable server: it keeps a file for each of them,
// for keepalived and others, runs a program when that changes, and has addresses on interfaces
// while there is one.
package vitals

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// State is how many servers of a Balance are usable.
type State struct {
	Usable, Servers int
	// Link is the interface that has the addresses while a server is usable; empty: none.
	Link      string
	Addresses []netip.Addr
}

// serves reports whether a server is usable.
func (s State) serves() bool { return s.Usable > 0 }

// Config says what to do.
type Config struct {
	// Directory has a file for each Balance; empty: there are no files. Files of its form that an
	// earlier run has left are removed.
	Directory string
	Program   string // is run at the start, and when a Balance gains or loses its last usable server
	// Assess returns the state of a Balance; false: there is none of this name.
	Assess func(model.ServiceName) (State, bool)
	// Run runs a program with these variables; its error says why it failed.
	Run   func(ctx context.Context, program string, env []string) error
	Links Links // nil: no addresses are kept
	// Keeps reports whether rules of an earlier run stay, because a part of the source cannot be read:
	// so do its addresses then. Nil: no.
	Keeps func() bool
	// Record is the file of the addresses that were added; empty: there is none.
	Record string
	// Interval is the time between announcements of an address, after the first ones.
	Interval time.Duration
	Log      *slog.Logger
}

// Actor acts on states. Its methods are safe for concurrent use.
type Actor struct {
	Config
	wake     chan struct{}
	compares atomic.Bool // files are to be compared

	mu      sync.Mutex
	pending map[model.ServiceName]struct{}
	synced  map[model.ServiceName]struct{} // pending ones that the rules have
	begun   bool                           // all Balances have been noted

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

// New returns an actor.
func New(c Config) *Actor {
	return &Actor{
		Config: c, wake: make(chan struct{}, 1), pending: make(map[model.ServiceName]struct{}), addresses: newKeeper(&c),
		known: make(map[model.ServiceName]bool), slots: make(chan struct{}, budget.ChangePrograms), wants: make(map[model.ServiceName]told),
	}
}

// Note notes Services whose servers have changed: the next sync has it in the rules.
func (a *Actor) Note(names ...model.ServiceName) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		a.pending[name] = struct{}{}
	}
}

// Begin is Synced for all Balances that there are at the start.
func (a *Actor) Begin(names ...model.ServiceName) {
	a.Note(names...)
	a.request(true)
}

// Synced requests to act on the Services that were noted so far, and on others.
func (a *Actor) Synced(names ...model.ServiceName) {
	a.Note(names...)
	a.request(false)
}

func (a *Actor) request(begin bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 && !begin {
		return
	}
	a.begun = a.begun || begin
	if a.synced == nil {
		a.synced = a.pending
	} else {
		maps.Copy(a.synced, a.pending)
	}
	a.pending = make(map[model.ServiceName]struct{})
	select {
	case a.wake <- struct{}{}:
	default:
	}
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
	if err := a.prepare(); err != nil {
		a.Log.Error("files about Balances cannot be written", "directory", a.Directory, "error", err)
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
	names := a.synced
	a.synced, begun = nil, a.begun
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

// act acts on the state of one Balance.
func (a *Actor) act(ctx context.Context, name model.ServiceName) {
	state, exists := a.Assess(name)
	a.addresses.hold(name, state)
	before, known := a.known[name]
	switch {
	case !exists && !known:
		return
	case !exists:
		delete(a.known, name)
		a.record(name)
		return
	case known && before == state.serves():
		return
	}
	a.known[name] = state.serves()
	if known {
		a.Log.Info("a Balance has changed its state", "object", name.BalanceObject().String(), "usable", state.Usable, "servers", state.Servers)
	}
	a.record(name)
	if a.Program != "" {
		a.tell(ctx, name, state)
	}
}

const (
	directoryPermissions = 0o755
	filePermissions      = 0o644
	// separator is in no name of a namespace or Balance.
	separator = "_"
	// usable and unusable are the contents of files.
	usable, unusable = "0\n", "1\n"
)

func (a *Actor) prepare() error {
	if a.Directory == "" {
		return nil
	}
	return os.MkdirAll(a.Directory, directoryPermissions)
}

// path returns the file of a Balance.
func (a *Actor) path(name model.ServiceName) string {
	return filepath.Join(a.Directory, name.Namespace+separator+name.Name)
}

// record makes the file of a Balance right: 0 while a server is usable, else 1. keepalived takes a
// value other than 0, with weight 0, for a fault. What fails is tried again.
func (a *Actor) record(name model.ServiceName) {
	if a.Directory == "" {
		return
	}
	err := a.write(name)
	if err == nil {
		delete(a.unwritten, name)
		return
	}
	if text := err.Error(); a.unwritten[name] != text {
		if a.unwritten == nil {
			a.unwritten = make(map[model.ServiceName]string)
		}
		a.unwritten[name] = text
		a.Log.Error("the file about a Balance cannot be written or removed", "object", name.BalanceObject().String(), "error", err)
	}
}

func (a *Actor) write(name model.ServiceName) error {
	path := a.path(name)
	serves, known := a.known[name]
	if !known {
		return atomicfile.Remove(path)
	}
	if err := a.prepare(); err != nil {
		return err
	}
	draft := filepath.Join(a.Directory, "."+filepath.Base(path)) // readers see one value or the other
	if err := os.WriteFile(draft, []byte(contentOf(serves)), filePermissions); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// contentOf returns the content of the file of a Balance.
func contentOf(serves bool) string {
	if serves {
		return usable
	}
	return unusable
}

// sweep removes the files of Balances that an earlier run has known.
func (a *Actor) sweep() {
	if a.Directory == "" {
		return
	}
	_, err := removeFiles(a.Directory, func(name model.ServiceName) bool { _, known := a.known[name]; return known })
	if err != nil {
		a.Log.Error("the file about a Balance that is gone cannot be removed", "error", err)
	}
}

// RemoveFiles removes all files about Balances from a directory, and the directory if it is empty then.
// It returns descriptions of what it removed.
func RemoveFiles(directory string) (removed []string, err error) {
	removed, err = removeFiles(directory, func(model.ServiceName) bool { return false })
	if err == nil && len(removed) > 0 {
		_ = os.Remove(directory) // another program may have files there
	}
	return removed, err
}

// removeFiles removes the files about Balances that are not to be kept. Files of other programs, in a
// directory that is not for this alone, have another name or content.
func removeFiles(directory string, keep func(model.ServiceName) bool) (removed []string, err error) {
	entries, listErr := os.ReadDir(directory)
	if listErr != nil {
		return nil, nil // writing it has the error
	}
	for _, e := range entries {
		namespace, name, form := strings.Cut(e.Name(), separator)
		path := filepath.Join(directory, e.Name())
		if !form || e.Type() != fs.FileMode(0) || keep(model.ServiceName{Namespace: namespace, Name: name}) || !isOurs(path) {
			continue
		}
		if failure := atomicfile.Remove(path); failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		removed = append(removed, "file "+path)
	}
	return removed, err
}

// restore writes the files that have another content, or that are gone.
func (a *Actor) restore() {
	if a.Directory == "" {
		return
	}
	for name, serves := range a.known {
		text, err := atomicfile.Read(a.path(name))
		if err != nil || string(text) != contentOf(serves) {
			a.Log.Warn("the file about a Balance was changed or removed by another program: it is written again", "object", name.BalanceObject().String())
			a.record(name)
		}
	}
}

// isOurs reports whether a file has a content that this package writes.
func isOurs(path string) bool {
	if about, err := os.Stat(path); err != nil || about.Size() > int64(len(usable)) {
		return false
	}
	text, err := atomicfile.Read(path)
	return err == nil && slices.Contains([]string{usable, unusable}, string(text))
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

// run runs the program once.
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
	err := a.Config.Run(limited, a.Program, env)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.Log.Error("the program for a change of a Balance failed", "object", name.BalanceObject().String(), "state", state, "error", err)
	default:
		a.Log.Info("the program for a change of a Balance ran", "object", name.BalanceObject().String(), "state", state)
	}
}

// Lacks reports whether an address that a Balance asks for is not on this machine.
func (a *Actor) Lacks(s State) bool { return a != nil && a.addresses.lacks(s) }

// Announced returns the addresses that Balances ask for, and whether clients can reach them here.
func (a *Actor) Announced() []api.AnnouncedAddress {
	if a == nil {
		return nil
	}
	return a.addresses.announced()
}

// Problems says which addresses are not where they should be, and why.
func (a *Actor) Problems() []api.Problem {
	if a == nil {
		return nil
	}
	return a.addresses.problems()
}
