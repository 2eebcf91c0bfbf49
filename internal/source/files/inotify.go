package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Masks of watches. A library would watch directories with all events, so that each write to a
// file beside a followed one wakes the process.
const (
	// ofDirectory is for a directory on the way. While it has something that is watched, it is not
	// removed.
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

// add watches a name. If it cannot be watched itself, its directory is, and the one above: that reports
// the removal of a directory without files, also while a process has it open. Directories that
// cannot be read are left out.
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
			select {
			case n.changed <- struct{}{}:
			default:
			}
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
