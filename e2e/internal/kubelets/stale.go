package kubelets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dirPrefix is how the names of clusters' directories and cgroups begin.
const dirPrefix = "nftproxy-kubelets-"

// makeDir makes the directory of a cluster, and removes what clusters left whose
// process was killed. Each holds a lock as long as it lives.
func makeDir(parent string) (dir string, lock *os.File, err error) {
	all, err := lockFile(filepath.Join(parent, dirPrefix+"lock"), 0)
	if err != nil {
		return "", nil, err
	}
	defer all.Close()
	if err := removeStale(parent); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(parent, dirPrefix); err != nil {
		return "", nil, err
	}
	lock, err = lockFile(filepath.Join(dir, "lock"), unix.LOCK_NB)
	return dir, lock, err
}

func removeStale(parent string) error {
	locks, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*", "lock"))
	if err != nil {
		return err
	}
	for _, l := range locks {
		lock, err := lockFile(l, unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue // it lives, or has ended by itself
		}
		if err != nil {
			return err
		}
		dir := filepath.Dir(l)
		err = errors.Join(removeCgroups(filepath.Base(dir)), os.RemoveAll(dir), lock.Close())
		if err != nil {
			return fmt.Errorf("remove what is left of a cluster: %w", err)
		}
	}
	return nil
}

// lockFile locks a file until it is closed.
func lockFile(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|flags); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	return f, nil
}
