package vitals

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	directoryPermissions = 0o755
	filePermissions      = 0o644
	// separator is in no name of a namespace or Balance.
	separator = "_"
	// usable and unusable are the contents of files.
	usable, unusable = "0\n", "1\n"
)

func (a *Actor) prepare() error {
	if a.directory == "" {
		return nil
	}
	return os.MkdirAll(a.directory, directoryPermissions)
}

func (a *Actor) path(name model.ServiceName) string {
	return filepath.Join(a.directory, name.Namespace+separator+name.Name)
}

// record makes the file of a Balance right: 0 while a server is usable, else 1. keepalived takes a
// value other than 0, with weight 0, for a fault. What fails is tried again.
func (a *Actor) record(name model.ServiceName) {
	if a.directory == "" {
		return
	}
	err := a.write(name)
	if err == nil {
		delete(a.unwritten, name)
	} else if text := err.Error(); a.unwritten[name] != text {
		a.unwritten[name] = text
		a.node.Log.Error("the file about a Balance cannot be written or removed", "object", name.BalanceObject().String(), "error", err)
	}
}

func (a *Actor) write(name model.ServiceName) error {
	path := a.path(name)
	serves, known := a.known[name]
	if !known {
		return atomicfile.Remove(path)
	}
	if err := a.prepare(); err != nil {
		return err
	}
	draft := filepath.Join(a.directory, "."+filepath.Base(path)) // readers see one value or the other
	if err := os.WriteFile(draft, []byte(contentOf(serves)), filePermissions); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

func contentOf(serves bool) string {
	if serves {
		return usable
	}
	return unusable
}

// sweep removes the files of Balances that an earlier run has known.
func (a *Actor) sweep() {
	if a.directory == "" {
		return
	}
	_, err := removeFiles(a.directory, func(name model.ServiceName) bool { _, known := a.known[name]; return known })
	if err != nil {
		a.node.Log.Error("the file about a Balance that is gone cannot be removed", "error", err)
	}
}

// RemoveFiles removes all files about Balances from a directory, and the directory if it is empty then.
// It returns descriptions of what it removed.
func RemoveFiles(directory string) (removed []string, err error) {
	removed, err = removeFiles(directory, func(model.ServiceName) bool { return false })
	if err == nil && len(removed) > 0 {
		_ = os.Remove(directory) // another program may have files there
	}
	return removed, err
}

// removeFiles removes the files about Balances that are not to be kept. Files of other programs, in a
// directory that is not for this alone, have another name or content.
func removeFiles(directory string, keep func(model.ServiceName) bool) (removed []string, err error) {
	entries, _ := os.ReadDir(directory) // writing it has the error
	for _, e := range entries {
		namespace, name, form := strings.Cut(e.Name(), separator)
		path := filepath.Join(directory, e.Name())
		if !form || e.Type() != fs.FileMode(0) || keep(model.ServiceName{Namespace: namespace, Name: name}) || !isOurs(path) {
			continue
		}
		if failure := atomicfile.Remove(path); failure == nil {
			removed = append(removed, "file "+path)
		} else {
			err = errors.Join(err, failure)
		}
	}
	return removed, err
}

// restore writes the files that have another content, or that are gone.
func (a *Actor) restore() {
	if a.directory == "" {
		return
	}
	for name, serves := range a.known {
		text, err := atomicfile.Read(a.path(name))
		if err != nil || string(text) != contentOf(serves) {
			a.node.Log.Warn("the file about a Balance was changed or removed by another program: it is written again", "object", name.BalanceObject().String())
			a.record(name)
		}
	}
}

// isOurs reports whether a file has a content that this package writes.
func isOurs(path string) bool {
	if about, err := os.Stat(path); err != nil || about.Size() > int64(len(usable)) {
		return false
	}
	text, err := atomicfile.Read(path)
	return err == nil && slices.Contains([]string{usable, unusable}, string(text))
}
