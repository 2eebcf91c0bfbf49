package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
)

// Kept is a directory with the last valid content of files, compressed by gzip. The name of each
// file in it follows from the path; its first line is the path.
type Kept struct{ Dir string }

func (k *Kept) place(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(k.Dir, hex.EncodeToString(sum[:16]))
}

// read calls f with each saved file.
func (k *Kept) read(f func(name string, text []byte)) error {
	entries, err := os.ReadDir(k.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		packed, _, err := atomicfile.Open(filepath.Join(k.Dir, e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		text, err := savedText(bufio.NewReader(packed))
		name, text, found := bytes.Cut(text, []byte("\n"))
		if err == nil && found && k.place(string(name)) == packed.Name() { // else cut off
			f(string(name), text)
		}
		errs = append(errs, packed.Close())
	}
	return errors.Join(errs...)
}

// savedText returns the text of a saved file, which version 0.1 has not compressed.
func savedText(r *bufio.Reader) ([]byte, error) {
	if magic, err := r.Peek(2); err == nil && !bytes.Equal(magic, []byte{0x1f, 0x8b}) { // RFC 1952, 2.3.1
		return manifest.Read(r)
	}
	return unpack(r)
}

// write saves a text. A packer has its pieces.
func (k *Kept) write(name string, texts [][]byte, pack *packer) error {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteAll(k.place(name), slices.Insert(texts, 0, pack.pack([]byte(name+"\n"))), 0o600)
}

func (k *Kept) remove(name string) error { return atomicfile.Remove(k.place(name)) }

// packer compresses texts: YAML takes a tenth of its size and less.
type packer struct {
	mu     sync.Mutex
	writer *gzip.Writer
	buffer bytes.Buffer
}

// pack returns a compressed text; nothing without a packer. Several together are the texts together.
func (p *packer) pack(text []byte) []byte {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffer.Reset()
	if p.writer == nil { // level 2 takes two thirds of the memory of level 1
		p.writer, _ = gzip.NewWriterLevel(nil, 2)
	}
	p.writer.Reset(&p.buffer)
	_, _ = p.writer.Write(text) // a buffer takes all
	_ = p.writer.Close()
	return bytes.Clone(p.buffer.Bytes())
}

func unpack(packed io.Reader) ([]byte, error) {
	r, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	return manifest.Read(r)
}

// unpacked returns the text of a file.
func unpacked(texts [][]byte) []byte {
	var readers []io.Reader
	for _, text := range texts {
		readers = append(readers, bytes.NewReader(text))
	}
	text, _ := unpack(bufio.NewReader(io.MultiReader(readers...))) // of a packer
	return text
}

// texts returns the compressed texts of the blocks.
func (l *layout) texts() (out [][]byte) {
	for i := range l.blocks {
		out = append(out, l.blocks[i].text)
	}
	return out
}
