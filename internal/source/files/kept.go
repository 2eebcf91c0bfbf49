package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
)

// Kept is a directory with the last valid content of files. The name of each file in
// it follows from the path; its first line is the path.
type Kept struct{ Dir string }

func (k *Kept) place(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(k.Dir, hex.EncodeToString(sum[:16]))
}

// read adds the saved files to a map.
func (k *Kept) read(to map[string][]byte) error {
	entries, err := os.ReadDir(k.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(k.Dir, e.Name()))
		name, data, found := bytes.Cut(text, []byte("\n"))
		switch {
		case err != nil:
			errs = append(errs, err)
		case found && k.place(string(name)) == filepath.Join(k.Dir, e.Name()): // else cut off
			to[string(name)] = data
		}
	}
	return errors.Join(append(errs, err)...)
}

// write replaces what differs, or all.
func (k *Kept) write(before, now map[string][]byte, all bool) error {
	errs := []error{os.MkdirAll(k.Dir, 0o700)}
	for name, data := range now {
		if old, known := before[name]; all || !known || !bytes.Equal(old, data) {
			errs = append(errs, atomicfile.Write(k.place(name), fmt.Appendf(nil, "%s\n%s", name, data), 0o600))
		}
	}
	for name := range before {
		if _, stays := now[name]; !stays {
			errs = append(errs, atomicfile.Remove(k.place(name)))
		}
	}
	return errors.Join(errs...)
}
