package debian

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Image writes an initial file system in the form that the kernel reads: an
// archive of cpio, "newc".
type Image struct {
	w     *bufio.Writer
	size  int // bytes written
	inode int
	known map[string]bool // directories written
}

const trailer = "TRAILER!!!"

// WriteImage makes the file.
func WriteImage(path string, fill func(*Image) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	i := &Image{w: bufio.NewWriterSize(f, 1<<20), known: make(map[string]bool)}
	if err := fill(i); err != nil {
		return err
	}
	if err := i.entry(trailer, 0, 0, nil); err != nil {
		return err
	}
	return i.w.Flush()
}

// AddTree adds what is in a directory, below another name.
func (i *Image) AddTree(dir, name string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return i.Add(path, filepath.Join(name, strings.TrimPrefix(path, dir)))
	})
}

// Add adds a file, a symbolic link or an empty directory, and the directories
// that it is in.
func (i *Image) Add(path, name string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	mode := uint32(info.Mode().Perm())
	switch info.Mode().Type() {
	case fs.ModeDir:
		return i.mkdir(name)
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return errors.Join(i.mkdir(filepath.Dir(name)), i.entry(name, 0o120000|mode, len(target), strings.NewReader(target)))
	case 0:
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return errors.Join(i.mkdir(filepath.Dir(name)), i.entry(name, 0o100000|mode, int(info.Size()), f))
	}
	return fmt.Errorf("%s: neither a file nor a directory nor a symbolic link", path)
}

// mkdir adds a directory, once.
func (i *Image) mkdir(name string) error {
	if name = strings.Trim(name, "/"); name == "" || name == "." || i.known[name] {
		return nil
	}
	i.known[name] = true
	return errors.Join(i.mkdir(filepath.Dir(name)), i.entry(name, 0o040755, 0, nil))
}

// entry writes a header, a name and content.
func (i *Image) entry(name string, mode uint32, size int, content io.Reader) error {
	i.inode++
	name = strings.Trim(name, "/")
	n, err := fmt.Fprintf(i.w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		i.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	if i.size += n; err != nil {
		return err
	}
	if err := i.align(); err != nil || content == nil {
		return err
	}
	if copied, err := io.CopyN(i.w, content, int64(size)); err != nil {
		return fmt.Errorf("%s has %d bytes and had %d: %w", name, copied, size, err)
	}
	i.size += size
	return i.align()
}

// align adds zeros up to a multiple of 4 bytes.
func (i *Image) align() error {
	n, err := i.w.Write(make([]byte, -i.size&3))
	i.size += n
	return err
}

// AddContent adds a file.
func (i *Image) AddContent(name string, mode os.FileMode, content string) error {
	return errors.Join(i.mkdir(filepath.Dir(name)),
		i.entry(name, 0o100000|uint32(mode.Perm()), len(content), strings.NewReader(content)))
}
