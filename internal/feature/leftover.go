package feature

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
)

// Leftover is a kind of things that nftproxy leaves on a machine outside of its tables, or in an API server.
type Leftover struct {
	Name     string
	What     string // it is, and who asks for it
	Mark     string // by which nftproxy knows its own
	Restored string // when it is compared, and what that does
	Removed  string // what removes it
	// Writers are the source files, or folders of them, that make it.
	Writers []string
	// Remove is what "nftproxy cleanup" does. It returns descriptions of what it removed. Nil: nothing,
	// for the reason in Removed.
	Remove func(Scope) (removed []string, err error)
}

// Scope is where things are removed: the network namespace of the calling thread, and this directory.
type Scope struct {
	Runtime string // the runtime directory of the daemon
	Log     *slog.Logger
	// HealthDirectory returns the directory of files about Balances, and what removes it from the record; empty: there is none.
	HealthDirectory func() (path string, forget func(), err error)
}

// Leaver is a [Kind] that leaves something.
type Leaver interface{ Leaves() []Leftover }

// RemoveFile removes a file of a directory, and describes it; a missing one is none.
func RemoveFile(directory, name string) (removed []string, err error) {
	path := filepath.Join(directory, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := atomicfile.Remove(path); err != nil {
		return nil, err
	}
	return []string{"file " + path}, nil
}
