// Package atomicfile replaces files in one step.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the content of a file, which need not exist. Readers see the old content
// or the new one, also after a crash or a loss of power.
func Write(path string, data []byte, permissions fs.FileMode) (err error) {
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
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(permissions), f.Sync(), f.Close()); err != nil {
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
