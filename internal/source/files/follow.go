package files

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/source"
)

type runner interface {
	Run(ctx context.Context, changed func()) error
}

type followed struct {
	files    *Reader
	watcher  runner
	nodeName string
	node     atomic.Pointer[model.Node]
	states   map[model.ServiceName]model.ServiceState // of the input loaded last; nil: none was
	warned   []string                                 // by it
	unused   string                                   // problems of files that were logged last
	// missing are the files that were left out when the source was read first, and since.
	missing []string
	mu      sync.Mutex
	state   source.State // guarded by mu
	// unreadable receives a value when the system refused to read the files.
	unreadable chan struct{}
	log        *slog.Logger
}

const rereadAfter = 5 * time.Second

// Follow returns a Source that reads files again when the watcher, a [Watcher], says that they may have changed, on the
// node of that name. It was made before, so that no change is lost. Warnings about the objects go to log.
func Follow(files *Reader, watcher runner, nodeName string, log *slog.Logger) source.Source {
	files.follows = true
	return &followed{
		files: files, watcher: watcher, nodeName: nodeName,
		unreadable: make(chan struct{}, 1), log: log,
	}
}

func (f *followed) String() string { return "files " + strings.Join(f.files.Paths, " ") }

// Run also reads the files again after an error of the system, of whose end no watch may report: a directory that
// is mounted again, a shortage of file descriptors, an error of a disk.
func (f *followed) Run(ctx context.Context, changed func()) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.unreadable:
			}
			if source.Wait(ctx, rereadAfter) {
				changed()
			}
		}
	}()
	return f.watcher.Run(ctx, changed)
}

// AwaitNode returns immediately: a machine needs no Node object.
func (f *followed) AwaitNode(context.Context) error { return nil }

func (f *followed) Await(context.Context) error { return nil }

func (f *followed) Load() (*model.Update, error) {
	input, err := f.files.Load()
	if err != nil {
		f.setState(err, nil, time.Now())
		f.requestRetry(err)
		return nil, err
	}
	input.leaveOutPrograms()
	var unused error // not of an empty list
	if len(input.Unused) > 0 {
		unused = input.Unused
	}
	f.logUnused(input.Unused)
	f.setState(unused, input, time.Now())
	f.requestRetry(unused)
	before := f.warned
	f.warned = input.Warnings.Lines()
	for _, w := range f.warned {
		if !slices.Contains(before, w) {
			f.log.Warn(w)
		}
	}
	if f.states == nil {
		f.missing = input.LeftOut
	}
	f.missing = slices.DeleteFunc(slices.Clone(f.missing), func(file string) bool { return !slices.Contains(input.LeftOut, file) })
	n, _ := input.Snapshot.Node(f.nodeName)
	f.node.Store(n)
	u, now := input.Snapshot.Since(f.states)
	f.states, u.Partial = now, len(f.missing) > 0
	return u, nil
}

func (f *followed) Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState {
	if names == nil {
		return f.states
	}
	out := make(map[model.ServiceName]model.ServiceState, len(names))
	for _, name := range names {
		if s, ok := f.states[name]; ok {
			out[name] = s
		}
	}
	return out
}

// requestRetry requests another attempt after an error of the system. Other errors end only
// when the content of a file changes.
func (f *followed) requestRetry(err error) {
	if !errors.As(err, new(syscall.Errno)) {
		return
	}
	parallel.Signal(f.unreadable)
}

func (f *followed) logUnused(unused manifest.Errors) {
	before := f.unused
	switch f.unused = unused.Error(); {
	case f.unused == before:
	case f.unused == "":
		f.log.Info("all files usable again")
	default:
		f.log.Error("some files cannot be used; the others are served", "error", unused)
	}
}

func (f *followed) Node() *model.Node { return f.node.Load() }

func (f *followed) State() source.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Snapshot reads the files as Load does, and logs the warnings.
func (f *Reader) Snapshot(log *slog.Logger) (*model.Snapshot, error) {
	input, err := f.Load()
	if err != nil {
		return nil, err
	}
	for _, line := range input.Warnings.Lines() {
		log.Warn(line)
	}
	return input.Snapshot, nil
}

// setState records an attempt to read the files. The input is nil if nothing could be read; with
// an error, it lacks some files.
func (f *followed) setState(err error, in *Input, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.state
	if (err == nil) != (s.Err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	if s.Err = err; err != nil {
		s.Failures++
	}
	if in == nil {
		return
	}
	problems, _ := in.Warnings.Split()
	s.LastSuccess, s.Warnings, s.Warned = now, problems.Lines(), len(problems)
}
