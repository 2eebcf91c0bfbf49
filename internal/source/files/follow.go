package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
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
			if parallel.Wait(ctx, rereadAfter) {
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

// Health checks of type exec run programs as the user of this process. So the file that names a
// program, and the program itself, must be safe from other users, as crontabs of root are (3.73).

// leaveOutPrograms leaves out the checks whose file or program other users can change, each with a
// warning. The Services themselves are served.
func (in *Input) leaveOutPrograms() {
	unchecked := make(map[*model.Service]*model.Service)
	for o := range in.contents.all() {
		if s := o.service; s == nil || s.Check == nil || s.Check.Type != model.CheckExec {
			continue
		}
		sources := []string{o.File, o.service.Check.Command[0]}
		for _, of := range o.rareDetails().with { // the check may be theirs
			sources = append(sources, of.File)
		}
		for _, source := range sources {
			if err := checkOwners(source); err != nil {
				s := *o.service
				s.Check, unchecked[o.service] = nil, &s
				in.Warnings = append(in.Warnings, &manifest.Error{Place: o.Place, Object: o.id.String(), Err: err})
				break
			}
		}
	}
	for i, s := range in.Snapshot.Services {
		if s, ok := unchecked[s]; ok {
			in.Snapshot.Services[i] = s
		}
	}
}

const writableByOthers = 0o022

const leftOutCheck = "the health check is left out, and all servers are used, because its program would run with the rights of nftproxy and "

// checkOwners returns an error if users other than root and the one of this process can change a file,
// or have its path lead to another one: by a directory, or a link, on the way.
func checkOwners(file string) error {
	path, err := filepath.Abs(file)
	if err != nil || file == displayName(standardInput) {
		return err
	}
	way := make(watched)
	way.followPath(path)
	for _, name := range slices.Sorted(maps.Keys(way)) {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			// Of a directory with the sticky bit, others cannot replace a file, but create one.
			if info, err = os.Lstat(filepath.Dir(name)); err == nil && info.Mode()&writableByOthers != 0 {
				return fmt.Errorf(leftOutCheck+"other users can create %s: keep programs in a directory of root", name)
			}
		}
		if err == nil && isOthers(info) {
			return fmt.Errorf(leftOutCheck+"other users can change %s: run \"chown root %[1]s; chmod go-w %[1]s\"", name)
		}
	}
	return nil
}

// isOthers reports whether users other than root and the one of this process can change a file, or
// the names in a directory. The mode of a link has no meaning.
func isOthers(info fs.FileInfo) bool {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	shared := info.Mode()&writableByOthers != 0 && info.Mode()&fs.ModeSymlink == 0 && !(info.IsDir() && info.Mode()&fs.ModeSticky != 0)
	return shared || owner != 0 && owner != os.Geteuid()
}
