package files

import (
	"bytes"
	"context"
	"encoding/binary"
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

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/parallel"
)

const (
	// settleTime without an event ends a burst of changes.
	settleTime = 20 * time.Millisecond
	// maxSettleTime limits the wait for the end of a burst.
	maxSettleTime = 200 * time.Millisecond
	// joinTime is the pause between two reads of events.
	joinTime = 5 * time.Millisecond
)

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// Watcher reports possible changes of files: a file is written in place or replaced, a symbolic link on its path is
// switched, as in a mounted ConfigMap, a directory on its path is moved, files of a directory are added or removed,
// a path appears or disappears. Standard input is not watched, nor are changes by other machines that the kernel
// does not see (NFS).
type Watcher struct {
	paths  []string
	notify *inotify
}

// watched are the masks of all names that the content of the paths depends on: files, links and directories.
type watched map[string]uint32

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
func (w *Watcher) Close() error { return w.notify.file.Close() }

// Run calls changed once after each burst of changes, until ctx ends, and then returns nil. Changes since
// NewWatcher are included, and a change during a call leads to another call. There may be calls without a change.
// Run fails if the kernel refuses a watch.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	defer func() { _ = w.Close() }()
	for w.wait(ctx) {
		// Paths may lead elsewhere now. If the limits of the kernel do not allow new watches beside the old
		// ones, the old ones are removed first; the reader sees changes in between.
		old := w.notify
		err := w.setUp()
		_ = old.file.Close()
		if err != nil {
			err = w.setUp()
		}
		if err != nil {
			return err
		}
		changed()
	}
	return nil
}

func (w *Watcher) wait(ctx context.Context) bool {
	var settled, overdue <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.notify.changed:
		case <-settled:
			return true
		case <-overdue:
			return true
		}
		settled = time.After(settleTime)
		if overdue == nil {
			overdue = time.After(maxSettleTime)
		}
	}
}

func (w watched) isRelevant(path string) bool {
	_, known := w[path]
	return known || w[filepath.Dir(path)] == ofFolder && isManifest(path)
}

// setUp places new watches for the paths as they are now, and leaves the old ones to the caller.
func (w *Watcher) setUp() error {
	notify, err := newInotify()
	if err != nil {
		return fmt.Errorf("watch files: %w: raise fs.inotify.max_user_instances", err)
	}
	for {
		now := surveyPaths(w.paths)
		for name, mask := range now {
			if err := notify.add(name, mask); err != nil {
				return errors.Join(err, notify.file.Close())
			}
		}
		// A link may have been switched before its watch was there.
		if maps.Equal(now, surveyPaths(w.paths)) {
			w.notify = notify
			go notify.run(now.isRelevant)
			return nil
		}
	}
}

func surveyPaths(paths []string) watched {
	w := make(watched)
	for _, p := range paths {
		end := w.followPath(p)
		entries, err := os.ReadDir(end)
		if err != nil {
			continue // a file, or not there
		}
		w[end] = ofFolder
		for _, e := range entries {
			if isManifest(e.Name()) && e.Type()&fs.ModeSymlink != 0 { // else its directory suffices
				w.followPath(filepath.Join(end, e.Name()))
			}
		}
	}
	return w
}

// followPath walks a path as the kernel does and notes each name on the way. It
// returns the path without symbolic links, as far as it exists.
func (w watched) followPath(path string) string {
	at, rest := "/", split(path)
	for links := 0; len(rest) > 0; {
		name := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(name)
		w[name] |= maskOf(name, err)
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

// maskOf returns the mask of a name, which was read as a link with this error.
func maskOf(name string, err error) uint32 {
	switch {
	case err == nil:
		return ofLink
	case !errors.Is(err, syscall.EINVAL):
		return missing
	}
	if info, err := os.Lstat(name); err != nil || info.IsDir() {
		return ofDirectory
	}
	return ofFile
}

func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

// Masks of watches. A library would watch directories with all events, so that each write to a
// file beside a followed one wakes the process.
const (
	// ofDirectory is for a directory on the way. While it has something that is watched, it is not removed.
	ofDirectory = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	// ofLink is for a link: one that is replaced or removed has one name less, an attribute.
	ofLink = ofDirectory | unix.IN_ATTRIB
	ofFile = ofLink | unix.IN_MODIFY
	// ofNames is for the names in a directory, some of which are not watched themselves.
	ofNames = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB
	// ofFolder is for a directory that is read whole.
	ofFolder = ofDirectory | ofNames | unix.IN_MODIFY
	// missing is for a name that nothing has.
	missing = 0
)

type inotify struct {
	fd    int
	file  *os.File
	paths map[uint32]string // by watch descriptor
	// changed receives a value after relevant events.
	changed chan struct{}
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &inotify{fd, os.NewFile(uintptr(fd), "inotify"), make(map[uint32]string), make(chan struct{}, 1)}, nil
}

// add watches a name. If it cannot be watched itself, its directory is, and the one above: that reports the removal
// of a directory without files, also while a process has it open. Directories that cannot be read are left out.
func (n *inotify) add(name string, mask uint32) error {
	above := filepath.Dir(name)
	var errs []error
	if err := n.watchPath(name, mask); mask == missing || err != nil {
		errs = append(errs, err, n.watchPath(above, ofNames), n.watchPath(filepath.Dir(above), ofNames))
	} else if mask == ofFolder {
		errs = append(errs, n.watchPath(above, ofNames))
	}
	if err := errors.Join(errs...); errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("watch %s: %w: raise fs.inotify.max_user_watches", name, unix.ENOSPC)
	}
	return nil
}

func (n *inotify) watchPath(path string, mask uint32) error {
	wd, err := unix.InotifyAddWatch(n.fd, path, mask|unix.IN_MASK_ADD|unix.IN_DONT_FOLLOW)
	if err == nil {
		n.paths[uint32(wd)] = path
	}
	return err
}

// run reads events until the instance is closed. The pause after each read lets the next ones wait:
// the kernel joins equal events that wait, and a program that writes a large file makes thousands.
func (n *inotify) run(relevant func(path string) bool) {
	buffer := make([]byte, 16<<10)
	for {
		length, err := n.file.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n.hasRelevant(buffer[:length], relevant) {
			parallel.Signal(n.changed)
		}
		if err != nil { // events were lost; another instance follows
			return
		}
		time.Sleep(joinTime)
	}
}

// hasRelevant reports whether events have a relevant path, are about what is watched itself, or
// say that others were lost.
func (n *inotify) hasRelevant(events []byte, relevant func(path string) bool) (found bool) {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := binary.NativeEndian.Uint32(events)
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name := bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00")
		found = found || len(name) == 0 || relevant(filepath.Join(n.paths[wd], string(name)))
		events = events[end:]
	}
	return found
}
