package atomicfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// TestReadRegularFilesOnly: whatever else has the name of a file is an error that comes at once.
func TestReadRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pipe := filepath.Join(dir, "pipe")
	link := filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, dir, "/dev/zero"} {
		if data, err := Read(path); data != nil || !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %d bytes, %v", path, len(data), err)
		}
		if err := CheckRegular(path); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Read(socket); err == nil { // the kernel refuses to open it
		t.Error("a socket can be read")
	}
	if _, err := OpenLock(pipe, 0o600); !errors.Is(err, ErrNotRegular) {
		t.Errorf("lock of a pipe: %v", err)
	}
	if _, err := OpenLock(link, 0o600); err == nil {
		t.Error("a lock follows a link")
	}
	if err := CheckRegular(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestReadHasALimit, also for a file that takes no space on the disk, and one of /proc, whose
// size is not known before.
func TestReadHasALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(path); string(data) != "text" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.Truncate(path, budget.FileSize+1); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(path); data != nil || err == nil || !strings.Contains(err.Error(), "is larger than 64 MiB") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if data, err := Read("/proc/self/comm"); len(data) == 0 || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}
