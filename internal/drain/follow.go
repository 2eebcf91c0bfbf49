package drain

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Follower drains the endpoints that a file lists, and follows the file. It is safe for
// concurrent use.
type Follower struct {
	file  File
	watch func(ctx context.Context, changed func()) error
	log   *slog.Logger

	// notified is called after a change of the list, before that is announced.
	notified atomic.Pointer[func()]
	words    atomic.Pointer[func() words.Vocabulary] // nil: the ones of Kubernetes

	mu        sync.Mutex
	list      List      // in force
	announced List      // the same, once a sync of it is requested
	at        time.Time // of that request; zero: before the first sync
	problem   *Problem
	changed   func(...model.ServiceName) // nil before Run
}

// Problem is why a drain file cannot be used.
type Problem struct {
	Err   error
	Since time.Time
	// Unknown reports that no earlier list of the file is known, so that nothing is
	// drained. Otherwise the last list is in force.
	Unknown bool
}

// Follow returns a follower of a file, with its present content, or else its last one. watch
// calls changed when the file may have changed, until ctx ends; if it fails, the file is read
// at intervals.
func Follow(file File, watch func(ctx context.Context, changed func()) error, log *slog.Logger) *Follower {
	f := &Follower{file: file, watch: watch, log: log}
	f.start()
	f.announced = f.list
	return f
}

// start reads the file, and its copy if it cannot be used: a restart puts no endpoint back
// into service.
func (f *Follower) start() {
	if f.read(); f.problem == nil {
		return
	}
	last, err := f.file.last()
	f.list, f.problem.Unknown = last, len(last) == 0
	switch {
	case err != nil:
		f.log.Error("the copy of the drain file cannot be used either: no endpoint is drained", "error", err)
	case len(last) == 0:
		f.log.Error("no earlier content of the drain file is known: no endpoint is drained", "file", f.file.Path)
	default:
		f.log.Info("drained endpoints", "file", f.file.Copy(), "endpoints", len(last), "added", missing(last, nil, words.Kubernetes))
	}
}

// Notify sets a function that requests a sync.
func (f *Follower) Notify(request func()) { f.notified.Store(&request) }

// Speak sets the words for what the node serves, for the log. At the start, they are not known.
func (f *Follower) Speak(in func() words.Vocabulary) { f.words.Store(&in) }

func (f *Follower) in() words.Vocabulary {
	if in := f.words.Load(); in != nil {
		return (*in)()
	}
	return words.Kubernetes
}

// pollPause is how often a file is read that cannot be watched.
const pollPause = 5 * time.Second

// Run follows the file until ctx ends.
func (f *Follower) Run(ctx context.Context, changed func(...model.ServiceName)) {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	err := f.watch(ctx, f.Reread)
	if err == nil || ctx.Err() != nil {
		return
	}
	f.log.Warn("the drain file cannot be watched, and is read at intervals", "file", f.file.Path, "interval", pollPause, "error", err)
	ticker := time.NewTicker(pollPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Reread()
		}
	}
}

// Reread reads the file at once, after it was written by this process.
func (f *Follower) Reread() {
	before := f.List()
	if !f.read() {
		return
	}
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	if changed != nil {
		changed(concerned(before, f.List())...)
	}
	f.announce()
}

// concerned returns the Services of entries that only one of two lists has; none: it may be any
// Service.
func concerned(a, b List) (names []model.ServiceName) {
	for _, d := range [][2]List{{a, b}, {b, a}} {
		for _, e := range d[0] {
			switch {
			case slices.Contains(d[1], e):
			case e.Service == (model.ServiceName{}):
				return nil
			default:
				names = append(names, e.Service)
			}
		}
	}
	return names
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
	if l, err := f.file.Read(); err == nil {
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
	return len(f.list), f.problem == nil
}

// File returns the file.
func (f *Follower) File() File { return f.file }

// Problem returns why the file cannot be used; nil: it can.
func (f *Follower) Problem() *Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// read reads the file, and reports whether the list in force has changed.
func (f *Follower) read() bool {
	in := f.in()
	list, err := f.file.Read()
	if _, missing := os.Stat(f.file.Path); err == nil && len(f.List()) > 0 && errors.Is(missing, fs.ErrNotExist) {
		err = f.file.gone() // its copy as well
	}
	if err == nil {
		if err := f.file.keep(list); err != nil {
			f.log.Error(in.Text("drained endpoints are not kept for a restart at which the drain file cannot be used"), "file", f.file.Copy(), "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.fail(err)
		return false
	}
	before := f.list
	if f.problem != nil {
		f.log.Info("the drain file can be used again", "file", f.file.Path)
		f.problem = nil
	}
	if slices.Equal(before, list) {
		return false
	}
	f.list = list
	f.log.Info(in.Text("drained endpoints"), "file", f.file.Path, "endpoints", len(list), "added", missing(list, before, in), "removed", missing(before, list, in))
	return true
}

// fail notes an error. f.mu is locked.
func (f *Follower) fail(err error) {
	p := f.problem
	switch {
	case p != nil && p.Err.Error() == err.Error():
		return
	case p != nil:
		f.problem = &Problem{err, time.Now(), p.Unknown}
	default:
		f.problem = &Problem{Err: err, Since: time.Now()}
	}
	f.log.Error("the drain file cannot be used", "error", err, "stay", len(f.list))
}

// missing returns the endpoints of a list that another one does not have, the first ones
// if there are many.
func missing(of, from List, in words.Vocabulary) (out []string) {
	const most = 10
	for _, e := range of {
		if !slices.ContainsFunc(from, func(o Entry) bool { return o.Target == e.Target }) && len(out) < most {
			out = append(out, e.Text(in))
		}
	}
	return out
}
