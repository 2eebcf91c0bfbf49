package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
)

// Write makes a change in the one of some files and directories that has the Balance, and returns
// its path and whether the content has changed. check is asked about the new content before it is
// written. The file keeps its owner and permissions.
func Write(paths []string, c Change, check func(path string, content []byte) error) (path string, changed bool, err error) {
	for _, p := range paths {
		files, err := expandPath(p)
		if err != nil {
			return "", false, err
		}
		for _, path := range files {
			changed, err := c.write(path, check)
			if !errors.Is(err, ErrNotFound) {
				return path, changed, err
			}
		}
	}
	return "", false, fmt.Errorf("%w: %s", ErrNotFound, strings.Join(paths, ", "))
}

// expandPath returns the files for which a path stands, as nftproxy reads them.
func expandPath(path string) (out []string, err error) {
	about, err := os.Stat(path)
	if err != nil || !about.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		kind := filepath.Ext(e.Name())
		if !strings.HasPrefix(e.Name(), ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, kind) {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	return out, err
}

func (c Change) write(path string, check func(string, []byte) error) (changed bool, err error) {
	target, err := filepath.EvalSymlinks(path) // the link stays
	if err != nil {
		return false, err
	}
	unlock, err := lock(filepath.Dir(target))
	if err != nil {
		return false, err
	}
	defer unlock()
	text, err := atomicfile.Read(target)
	if err != nil {
		return false, err
	}
	c.JSON = filepath.Ext(path) == ".json"
	after, err := File(text, c)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, err
	case err != nil:
		return false, fmt.Errorf("%s: Balance %s: %w", path, c.Balance, err)
	case bytes.Equal(text, after):
		return false, nil
	}
	if err := check(path, after); err != nil {
		return false, fmt.Errorf("the file would be invalid, and is not changed: %w", err)
	}
	if err := atomicfile.Replace(target, after); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: run this as root", err)
		}
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// lockPatience is the time for other commands, each of which checks and writes one file.
const lockPatience = 30 * time.Second

// lock keeps other commands from changing files of a directory at the same time. It ends with
// the process.
func lock(folder string) (unlock func(), err error) {
	d, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.Lock(d, lockPatience); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return func() { _ = d.Close() }, nil
}
