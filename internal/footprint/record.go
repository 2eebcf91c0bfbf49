package footprint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
)

// Files of the runtime directory.
const (
	// RulesFile says what the kernel holds, for the next start.
	RulesFile = "rules.json"
	// leftFile is the record of what nothing marks otherwise.
	leftFile = "left.json"

	permissions = 0o600
)

// left is the content of the record.
type left struct {
	// Boot and Namespace are where the settings are.
	Boot      string
	Namespace uint64
	Settings  []host.Change `json:",omitempty"` // the oldest first
	// HealthDirectory has files about Balances (--health-directory).
	HealthDirectory string `json:",omitempty"`
}

// Record notes what "nftproxy cleanup" undoes: settings of the kernel, and directories. It is safe for
// concurrent use. A nil Record notes nothing.
type Record struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	ready bool // has was read
	has   left
}

// Open returns the record in a runtime directory; nil: there is no directory.
func Open(directory string, log *slog.Logger) *Record {
	if directory == "" {
		return nil
	}
	return &Record{path: filepath.Join(directory, leftFile), log: log}
}

// read reads the file, once. One of another network namespace, or from before the machine started, does not
// count. It fails on kernels before 5.14, where namespaces have no identity.
func (r *Record) read() error {
	if r.ready {
		return nil
	}
	here, err := identifyNamespace()
	if err != nil {
		return fmt.Errorf("identify the network namespace: %w", err)
	}
	data, err := atomicfile.Read(r.path)
	if err == nil {
		err = json.Unmarshal(data, &r.has)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	if r.has.Boot != here.Boot || r.has.Namespace != here.Namespace {
		r.has = left{Boot: here.Boot, Namespace: here.Namespace}
	}
	r.ready = true
	return nil
}

// identifyNamespace returns the network namespace of the calling thread.
func identifyNamespace() (here kernel.Identity, err error) {
	conn, err := kernel.Open()
	if err != nil {
		return here, err
	}
	here, err = conn.Identity()
	return here, errors.Join(err, conn.Close())
}

// Setting notes a change of a setting before it is made. The value from before the first change is kept.
func (r *Record) Setting(c host.Change) {
	r.editRecord(func(l *left) {
		i := slices.IndexFunc(l.Settings, func(o host.Change) bool { return o.File == c.File })
		switch {
		case i < 0:
			l.Settings = append(l.Settings, c)
		case l.Settings[i].From == c.To:
			l.Settings = slices.Delete(l.Settings, i, i+1)
		default:
			l.Settings[i].To = c.To
		}
	})
}

// HealthDirectory notes the directory of files about Balances.
func (r *Record) HealthDirectory(path string) {
	r.editRecord(func(l *left) { l.HealthDirectory = path })
}

// editRecord changes the record, and writes it. A failure is logged.
func (r *Record) editRecord(f func(*left)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.read()
	if err == nil {
		f(&r.has)
		err = r.write()
	}
	if err != nil {
		r.log.Warn("a change of this machine is not recorded: \"nftproxy cleanup\" does not undo it", "error", err)
	}
}

func (r *Record) write() error {
	if len(r.has.Settings) == 0 && r.has.HealthDirectory == "" {
		return atomicfile.Remove(r.path)
	}
	data, err := json.Marshal(r.has)
	if err != nil {
		return err
	}
	return atomicfile.Write(r.path, data, permissions)
}
