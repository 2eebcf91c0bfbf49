package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	for _, text := range []string{"a longer text", "short"} {
		if err := Write(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("content %q, %v; want %q", got, err, text)
		}
	}
	if err := Write(path, []byte("two pieces"), 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "two pieces" {
		t.Errorf("content %q, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("the directory has %v, %v", all, err)
	}
}

// A write that fails leaves neither a part of the file nor a temporary one.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "none", "list"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the directory: %v", err)
	}
	path := filepath.Join(dir, "list")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, nil, 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("the directory has %v, %v", all, err)
	}
}

// TestRemoveDrafts: what a killed process has left is removed; what another one writes now, and files with other names, stay.
func TestRemoveDrafts(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".list.123", ".list.124", ".list", "list.125", ".list.x1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tryLock(opened(t, filepath.Join(dir, ".list.124"))); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "written"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".dir.1"), 0o700), RemoveDrafts(dir), RemoveDrafts(filepath.Join(dir, "none"))); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	if got := strings.Join(all, " "); err != nil || got != ".dir.1 .list .list.124 .list.x1 list.125 written" {
		t.Errorf("there are %s, %v", got, err)
	}
}

// The error of a read-only file system says what to do, and others stay as they are.
func TestReadOnly(t *testing.T) {
	const want = "open x: read-only file system: mount the directory for writing, or name another file with --drain-file of \"nftproxy run\""
	if got := ReadOnly(&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, "--drain-file"); got.Error() != want || !errors.Is(got, syscall.EROFS) {
		t.Errorf("%v, want %s", got, want)
	}
	for _, err := range []error{nil, fs.ErrExist} {
		if got := ReadOnly(err, "--drain-file"); got != err {
			t.Errorf("%v for %v", got, err)
		}
	}
}
