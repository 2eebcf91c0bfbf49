package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// ErrNotRegular is the error about a pipe, a device, a socket or a directory in place of a file.
var ErrNotRegular = errors.New("is not a regular file")

// Open opens a regular file for reading. Anything else is an [ErrNotRegular], without waiting:
// opening a pipe that nothing writes to would block without end.
func Open(path string) (*os.File, fs.FileInfo, error) { return open(path, os.O_RDONLY, 0) }

// OpenLock opens a regular file to lock it, and creates it if needed. It follows no link.
func OpenLock(path string, permissions fs.FileMode) (*os.File, error) {
	f, _, err := open(path, os.O_RDWR|os.O_CREATE|noFollow, permissions)
	return f, err
}

func open(path string, flags int, permissions fs.FileMode) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, flags|noWait, permissions)
	if err != nil {
		return nil, nil, err
	}
	about, err := f.Stat()
	if err == nil && !about.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, about, nil
}

// Read returns the content of a regular file, which may have up to [budget.FileSize] bytes.
func Read(path string) ([]byte, error) {
	f, about, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if about.Size() > budget.FileSize { // a hole of any size takes no disk
		return nil, tooLarge(path)
	}
	data, err := io.ReadAll(io.LimitReader(f, budget.FileSize+1))
	if err == nil && len(data) > budget.FileSize {
		err = tooLarge(path)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

func tooLarge(path string) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is larger than %d MiB", budget.FileSize>>20)}
}

// CheckRegular returns an [ErrNotRegular] if a path leads to something else than a regular file,
// for the sake of libraries that open it. A file that does not exist is no error.
func CheckRegular(path string) error {
	about, err := os.Stat(path)
	if err == nil && !about.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	return nil
}
