package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleTime without an event ends a burst of changes.
	settleTime = 20 * time.Millisecond
	// maxSettleTime limits the wait for the end of a burst.
	maxSettleTime = 200 * time.Millisecond
	// joinTime is how long a repeated event lets the next one wait: the kernel joins equal events
	// that wait, and a program that writes a large file makes thousands of them.
	joinTime = 5 * time.Millisecond
)

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// Watcher reports possible changes of files: a file is written in place or
// replaced, a symbolic link on its path is switched, as in a mounted ConfigMap, a
// directory on its path is moved, files of a directory are added or removed, a
// path appears or disappears. Standard input is not watched, nor are changes by
// other machines that the kernel does not see (NFS).
type Watcher struct {
	paths  []string
	notify *fsnotify.Watcher
	watched
}

// watched selects the relevant events.
type watched struct {
	names   map[string]bool // files, links and directories
	folders map[string]bool // directories that are read whole
}

// NewWatcher returns a watcher for the paths of a [Reader], or of other files. Its watches
// are active: with NewWatcher before the files are read and Run after it, no change is lost.
func NewWatcher(paths ...string) (*Watcher, error) {
	w := &Watcher{}
	for _, p := range paths {
		if p == standardInput {
			continue
		}
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", p, err)
		}
		w.paths = append(w.paths, abs)
	}
	if err := w.setUp(); err != nil {
		return nil, err
	}
	return w, nil
}

// Close releases the watches of a watcher that is not run.
func (w *Watcher) Close() error { return w.notify.Close() }

// Run calls changed once after each burst of changes, until ctx ends, and then
// returns nil. Changes since NewWatcher are included, and a change during a call
// leads to another call. There may be calls without a change. Run fails if the
// kernel refuses a watch.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	defer func() { _ = w.notify.Close() }()
	for w.wait(ctx) {
		if err := w.renew(); err != nil {
			return err
		}
		changed()
	}
	return nil
}

// renew replaces the watches, because paths may lead elsewhere now. It runs before
// the files are read, so that no change is missed. If the limits of the kernel
// do not allow new watches beside the old ones, the old ones are removed first;
// the reader sees changes in between.
func (w *Watcher) renew() error {
	old := w.notify
	err := w.setUp()
	_ = old.Close()
	if err != nil {
		err = w.setUp()
	}
	return err
}

// wait returns true after a burst of events, false when ctx has ended.
func (w *Watcher) wait(ctx context.Context) bool {
	var settled, overdue <-chan time.Time
	var last fsnotify.Event
	for {
		relevant := false
		select {
		case <-ctx.Done():
			return false
		case e := <-w.notify.Events:
			if e == last {
				time.Sleep(joinTime)
			}
			last = e
			relevant = w.relevant(filepath.Clean(e.Name))
		case <-w.notify.Errors:
			relevant = true // events were lost
		case <-settled:
			return true
		case <-overdue:
			return true
		}
		if !relevant {
			continue
		}
		settled = time.After(settleTime)
		if overdue == nil {
			overdue = time.After(maxSettleTime)
		}
	}
}

func (w *watched) relevant(name string) bool {
	return w.names[name] || w.folders[filepath.Dir(name)] && isManifest(name)
}

// setUp places new watches for the paths as they are now, and leaves the old
// ones to the caller.
func (w *Watcher) setUp() error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w: raise fs.inotify.max_user_instances", err)
	}
	for {
		now := survey(w.paths)
		if err := now.watch(notify); err != nil {
			return errors.Join(err, notify.Close())
		}
		// A link may have been switched before its watch was there.
		if again := survey(w.paths); maps.Equal(now.names, again.names) && maps.Equal(now.folders, again.folders) {
			w.notify, w.watched = notify, now
			return nil
		}
	}
}

// survey finds all names that the content of the paths depends on.
func survey(paths []string) watched {
	w := watched{map[string]bool{}, map[string]bool{}}
	for _, p := range paths {
		end := w.follow(p)
		entries, err := os.ReadDir(end)
		if err != nil {
			continue // a file, or not there
		}
		w.folders[end] = true
		for _, e := range entries {
			if isManifest(e.Name()) {
				w.follow(filepath.Join(end, e.Name()))
			}
		}
	}
	return w
}

// follow walks a path as the kernel does and notes each name on the way. It
// returns the path without symbolic links, as far as it exists.
func (w *watched) follow(path string) string {
	at, rest := "/", split(path)
	for links := 0; len(rest) > 0; {
		name := filepath.Join(at, rest[0])
		rest = rest[1:]
		w.names[name] = true
		target, err := os.Readlink(name)
		if errors.Is(err, syscall.EINVAL) { // not a link
			at = name
			continue
		}
		if links++; err != nil || links > maxLinks {
			return name
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(split(target), rest...)
	}
	return at
}

func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

// watch watches the directories of all names. Directories further up that cannot
// be read are left out; the names below them are still watched.
func (w *watched) watch(notify *fsnotify.Watcher) error {
	dirs := maps.Clone(w.folders)
	for name := range w.names {
		dirs[filepath.Dir(name)] = true
	}
	for dir := range dirs {
		err := notify.Add(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		return fmt.Errorf("watch directory %s: %w: raise fs.inotify.max_user_watches", dir, err)
	}
	return nil
}
