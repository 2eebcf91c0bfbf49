package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
)

// Kept is a directory with the last valid content of files. The name of each file in it follows
// from the path; its first line is the path, and the rest is the content.
type Kept struct{ Dir string }

func (k *Kept) pathOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(k.Dir, hex.EncodeToString(sum[:16]))
}

// all calls f with each saved file, and whether it is compressed, as version 0.2 wrote it.
func (k *Kept) all(f func(name string, text []byte, packed bool)) error {
	entries, err := os.ReadDir(k.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		place := filepath.Join(k.Dir, e.Name())
		saved, _, err := atomicfile.Open(place)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		text, packed, err := savedText(bufio.NewReader(saved))
		name, text, found := bytes.Cut(text, []byte("\n"))
		if err == nil && found && k.pathOf(string(name)) == place { // else cut off
			f(string(name), text, packed)
		}
		errs = append(errs, saved.Close())
	}
	return errors.Join(errs...)
}

func (k *Kept) read(name string) []byte {
	text, err := manifest.ReadFile(k.pathOf(name))
	if err != nil {
		return nil
	}
	_, text, _ = bytes.Cut(text, []byte("\n"))
	return text
}

// savedText returns the text of a saved file, and whether it is compressed.
func savedText(r *bufio.Reader) (text []byte, packed bool, err error) {
	if magic, err := r.Peek(2); err != nil || !bytes.Equal(magic, []byte{0x1f, 0x8b}) { // RFC 1952, 2.3.1
		text, err = manifest.Read(r)
		return text, false, err
	}
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, true, err
	}
	text, err = manifest.Read(unpacked)
	return text, true, err
}

func (k *Kept) write(name string, text []byte) error {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(k.pathOf(name), slices.Concat([]byte(name+"\n"), text), 0o600)
}

func (k *Kept) remove(name string) error { return atomicfile.Remove(k.pathOf(name)) }
