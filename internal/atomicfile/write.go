// Package atomicfile replaces and removes files in one step.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces the content of a file, which need not exist. Readers see the old content
// or the new one, also after a crash or a loss of power.
func Write(path string, data []byte, permissions fs.FileMode) error {
	return WriteAll(path, [][]byte{data}, permissions)
}

// WriteAll is Write for data in several pieces.
func WriteAll(path string, data [][]byte, permissions fs.FileMode) error {
	return write(path, data, func(f *os.File) error { return f.Chmod(permissions) })
}

// Replace is Write for a file that exists, and keeps its owner, group and permissions.
func Replace(path string, data []byte) error {
	about, err := os.Stat(path)
	if err != nil {
		return err
	}
	return write(path, [][]byte{data}, func(f *os.File) error {
		var err error
		if user, group, ok := ownerOf(about); ok {
			err = f.Chown(user, group)
		}
		return errors.Join(err, f.Chmod(about.Mode().Perm()))
	})
}

// Remove removes a file, which need not exist.
func Remove(path string) error {
	// On a file system that cannot be written, removing fails before the kernel looks for the file.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func write(path string, data [][]byte, own func(*os.File) error) (err error) {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	for i := 0; i < len(data) && err == nil; i++ {
		_, err = f.Write(data[i])
	}
	if err := errors.Join(err, own(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return nil // the file is in place; only its name may not be on the disk yet
	}
	_ = d.Sync() // file systems without it write the name soon
	return d.Close()
}

// ReadOnly adds what to do to an error because of a read-only file system; flag is the one that names the file.
func ReadOnly(err error, flag string) error {
	if !errors.Is(err, syscall.EROFS) {
		return err
	}
	return fmt.Errorf("%w: mount the directory for writing, or name another file with %s of \"nftproxy run\"", err, flag)
}
