// Package tarball reads archives in tests.
package tarball

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// File is a file of an archive.
type File struct {
	Mode    int64
	Content string
}

// Read returns the files of a compressed archive by their paths.
func Read(t testing.TB, archive []byte) map[string]File {
	t.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]File)
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = File{h.Mode, string(content)}
	}
}

// Unpack returns the files of an archive, by their paths without the first directory.
func Unpack(t testing.TB, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for path, f := range Read(t, content) {
		_, name, _ := strings.Cut(path, "/")
		out[name] = f.Content
	}
	return out
}
