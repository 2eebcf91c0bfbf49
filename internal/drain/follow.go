package drain

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Follower drains the endpoints that a file lists, and follows the file. It is safe for
// concurrent use.
type Follower struct {
	path  string
	watch func(ctx context.Context, changed func()) error
	log   *slog.Logger

	// notified is called after a change of the list, before that is announced.
	notified atomic.Pointer[func()]

	mu        sync.Mutex
	list      List      // in force
	announced List      // the same, once a sync of it is requested
	at        time.Time // of that request; zero: before the first sync
	err       error
	since     time.Time // of err
}

// Follow returns a follower of a file, with its present content. watch calls changed when
// the file may have changed, until ctx ends; if it fails, the file is read at intervals. A
// file that cannot be used drains nothing.
func Follow(path string, watch func(ctx context.Context, changed func()) error, log *slog.Logger) *Follower {
	f := &Follower{path: path, watch: watch, log: log}
	f.read()
	f.announced = f.list
	return f
}

// Notify sets a function that requests a sync.
func (f *Follower) Notify(request func()) { f.notified.Store(&request) }

// pollPause is how often a file is read that cannot be watched.
const pollPause = 5 * time.Second

// Run follows the file until ctx ends.
func (f *Follower) Run(ctx context.Context, changed func(...model.ServiceName)) {
	again := func() {
		if f.read() {
			changed() // of any Service
			f.announce()
		}
	}
	err := f.watch(ctx, again)
	if err == nil || ctx.Err() != nil {
		return
	}
	f.log.Warn("the drain file cannot be watched, and is read at intervals", "file", f.path, "interval", pollPause, "error", err)
	ticker := time.NewTicker(pollPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			again()
		}
	}
}

// announce makes the list known to those who wait until it is in the kernel.
func (f *Follower) announce() {
	if request := f.notified.Load(); request != nil {
		(*request)()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced, f.at = f.list, time.Now()
}

// Announced returns the list in force, once a sync of it was requested, and when that was;
// zero: the first sync of all makes it effective.
func (f *Follower) Announced() (List, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.announced, f.at
}

// Latest returns the list as the file has it now, or the list in force while the file
// cannot be used. It is in force soon.
func (f *Follower) Latest() List {
	if l, err := Read(f.path); err == nil {
		return l
	}
	return f.List()
}

// Edit drains the endpoints of a Service.
func (f *Follower) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	return f.List().Edit(name, state)
}

// List returns the list in force. It is shared.
func (f *Follower) List() List {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

// Counts returns the number of entries in force, and whether the file can be used.
func (f *Follower) Counts() (entries int, usable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.list), f.err == nil
}

// Path returns the path of the file.
func (f *Follower) Path() string { return f.path }

// Problem returns why the file cannot be used, and since when; nil: it can. The last good
// content is in force then.
func (f *Follower) Problem() (since time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since, f.err
}

// read reads the file, and reports whether the list in force has changed.
func (f *Follower) read() bool {
	list, err := Read(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failed := f.list, f.err
	f.err = err
	switch {
	case err != nil && (failed == nil || failed.Error() != err.Error()):
		f.since = time.Now()
		f.log.Error("the drain file cannot be used; its last good content stays in force", "error", err)
	case err == nil && failed != nil:
		f.log.Info("the drain file can be used again", "file", f.path)
	}
	if err != nil || slices.Equal(before, list) {
		return false
	}
	f.list = list
	f.log.Info("drained endpoints", "file", f.path, "endpoints", len(list), "added", missing(list, before), "removed", missing(before, list))
	return true
}

// missing returns the endpoints of a list that another one does not have, the first ones
// if there are many.
func missing(of, from List) (out []string) {
	const most = 10
	for _, e := range of {
		if !slices.ContainsFunc(from, func(o Entry) bool { return o.Target == e.Target }) && len(out) < most {
			out = append(out, e.String())
		}
	}
	return out
}
