package drain

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Follower drains the endpoints that a file lists, and follows the file. It is safe for
// concurrent use.
type Follower struct {
	file    File
	watcher Watcher
	serving Serving
	log     *slog.Logger

	working sync.Mutex // held while this process reads the file and uses it, and changes servers
	adopted bool       // nothing is left to take over of [File.Older]; guarded by working

	mu         sync.Mutex
	notAdopted string    // why changes of an earlier version do not count; empty: they do
	content    Content   // in force
	announced  List      // what is drained, once a sync of it is requested
	at         time.Time // of that request; zero: before the first sync
	problem    *Problem
	changed    func(...model.ServiceName) // nil before Run
}

// Watcher calls changed when a file may have changed, until ctx ends.
type Watcher interface {
	Run(ctx context.Context, changed func()) error
}

// Serving is a node that serves Services.
type Serving interface {
	Changed()                // requests a sync
	Words() words.Vocabulary // for what it serves, as far as that is known
}

// Problem is why a drain file cannot be used.
type Problem struct {
	Err   error
	Since time.Time
	// Unknown reports that no earlier list of the file is known, so that nothing is
	// drained. Otherwise the last list is in force.
	Unknown bool
}

// Follow returns a follower of a file, with its present content, or else its last one, and with the changes of
// an older file. If the watcher fails, the file is read at intervals.
func Follow(file File, w Watcher, s Serving, log *slog.Logger) *Follower {
	f := &Follower{file: file, watcher: w, serving: s, log: log}
	f.start()
	f.announced = f.content.Drained
	return f
}

// adopt takes over the changes of the older file, until that has succeeded.
func (f *Follower) adopt() {
	if f.file.Older == "" || f.adopted {
		return
	}
	n, err := f.file.adopt()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.adopted, f.notAdopted = true, ""
	case err.Error() != f.notAdopted:
		f.notAdopted = err.Error()
		f.log.Error("runtime changes of an earlier version cannot be taken over, and do not count", "file", f.file.Older, "error", err)
	}
	if n > 0 {
		f.log.Info("runtime changes of an earlier version are in another file now", "before", f.file.Older, "file", f.file.Path, "changes", n)
	}
}

// NotAdopted returns why changes of an earlier version do not count; empty: they do, or there are none.
func (f *Follower) NotAdopted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notAdopted
}

// start reads the file, and its copy if it cannot be used: a restart puts no endpoint back
// into service.
func (f *Follower) start() {
	if f.read(); f.problem == nil {
		return
	}
	last, err := f.file.last()
	f.content.Drained, f.problem.Unknown = last, len(last) == 0
	switch {
	case err != nil:
		f.log.Error("the copy of the drain file cannot be used either: no endpoint is drained", "error", err)
	case len(last) == 0:
		f.log.Error("no earlier content of the drain file is known: no endpoint is drained", "file", f.file.Path)
	default:
		f.log.Info("drained endpoints", "file", f.file.Copy(), "endpoints", len(last), "added", missing(last, nil, words.Kubernetes))
	}
}

// pollPause is how often a file is read that cannot be watched.
const pollPause = 5 * time.Second

// Run follows the file until ctx ends.
func (f *Follower) Run(ctx context.Context, changed func(...model.ServiceName)) {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	err := f.watcher.Run(ctx, f.Reread)
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
	f.working.Lock()
	defer f.working.Unlock()
	f.reread()
}

// reread is Reread for a caller that holds the lock of f.working.
func (f *Follower) reread() {
	before := f.current()
	if !f.read() {
		return
	}
	now := f.current()
	names := concerned(before.Drained, now.Drained)
	if len(names) > 0 || slices.Equal(before.Drained, now.Drained) {
		names = append(names, before.Changes.differing(now.Changes)...)
	}
	f.announceTo(names...)
	f.serving.Changed()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced, f.at = f.content.Drained, time.Now()
}

// announceTo announces a change of Services; none: it may be any.
func (f *Follower) announceTo(names ...model.ServiceName) {
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	if changed != nil {
		changed(names...)
	}
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

// List returns the list of drained endpoints in force. It is shared.
func (f *Follower) List() List { return f.current().Drained }

// current returns the content in force. It is shared.
func (f *Follower) current() Content {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.content
}

// setChanges replaces the changes of a Balance in force.
func (f *Follower) setChanges(name model.ServiceName, all []Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content.Changes = f.content.Changes.replaced(name, all)
}

func (f *Follower) File() File { return f.file }

// Problem returns why the file cannot be used; nil: it can.
func (f *Follower) Problem() *Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// read reads the file, and reports whether the content in force has changed.
func (f *Follower) read() bool {
	f.adopt()
	in := f.serving.Words()
	content, err := f.file.ReadAll()
	before := f.current()
	if _, missing := os.Stat(f.file.Path); err == nil && len(before.Drained) > 0 && errors.Is(missing, fs.ErrNotExist) {
		err = f.file.gone() // its copy as well
	}
	if err == nil {
		if err := f.file.keep(content.Drained); err != nil {
			f.log.Error(in.Text("drained endpoints are not kept for a restart at which the drain file cannot be used"), "file", f.file.Copy(), "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.fail(err)
		return false
	}
	if f.problem != nil {
		f.log.Info("the drain file can be used again", "file", f.file.Path)
		f.problem = nil
	}
	same := slices.Equal(before.Drained, content.Drained)
	if same && len(before.Changes.differing(content.Changes)) == 0 {
		return false
	}
	f.content = content
	if !same {
		list := content.Drained
		f.log.Info(in.Text("drained endpoints"), "file", f.file.Path, "endpoints", len(list), "added", missing(list, before.Drained, in), "removed", missing(before.Drained, list, in))
	}
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
	f.log.Error("the drain file cannot be used", "error", err, "stay", len(f.content.Drained))
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
