package main

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

// image writes an initial file system in the form that the kernel reads: an
// archive of cpio, "newc".
type image struct {
	w     *bufio.Writer
	size  int // bytes written
	inode int
	known map[string]bool // directories written
}

const trailer = "TRAILER!!!"

// writeImage makes the file.
func writeImage(path string, fill func(*image) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	i := &image{w: bufio.NewWriterSize(f, 1<<20), known: make(map[string]bool)}
	if err := fill(i); err != nil {
		return err
	}
	if err := i.entry(trailer, 0, 0, nil); err != nil {
		return err
	}
	return i.w.Flush()
}

// addTree adds what is in a directory, below another name.
func (i *image) addTree(dir, name string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return i.add(path, filepath.Join(name, strings.TrimPrefix(path, dir)))
	})
}

// add adds a file, a symbolic link or an empty directory, and the directories
// that it is in.
func (i *image) add(path, name string) error {
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
func (i *image) mkdir(name string) error {
	if name = strings.Trim(name, "/"); name == "" || name == "." || i.known[name] {
		return nil
	}
	i.known[name] = true
	return errors.Join(i.mkdir(filepath.Dir(name)), i.entry(name, 0o040755, 0, nil))
}

// entry writes a header, a name and content.
func (i *image) entry(name string, mode uint32, size int, content io.Reader) error {
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
func (i *image) align() error {
	n, err := i.w.Write(make([]byte, -i.size&3))
	i.size += n
	return err
}
