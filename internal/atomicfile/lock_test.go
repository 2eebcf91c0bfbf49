package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLock: a lock of a file or directory is waited for, and one that stays is named with its holder.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, path} {
		first, second := opened(t, at), opened(t, at)
		if err := Lock(first, 0); err != nil {
			t.Fatal(err)
		}
		err := Lock(second, 2*lockPause)
		if want := fmt.Sprintf("process %d (", os.Getpid()); err == nil || !strings.HasPrefix(err.Error(), "lock "+at+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("while it is locked: %v, want %q", err, want)
		}
		go first.Close()
		if err := Lock(second, time.Minute); err != nil {
			t.Errorf("after that: %v", err)
		}
	}
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestHolder: the holder is found by device and inode. By the inode alone it is a guess.
func TestHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 99 00:1f:1234 0 EOF
2: FLOCK  ADVISORY  WRITE 4710 00:2a:1234 0 EOF
2: FLOCK  ADVISORY  WRITE 4711 00:1f:1234 0 EOF
2: -> FLOCK  ADVISORY  WRITE 4712 00:1f:1234 0 EOF
3: FLOCK  ADVISORY  WRITE 0 08:01:77 0 EOF
4: FLOCK  ADVISORY  WRITE 4713 103:12345:88 0 EOF
malformed
`
	for _, c := range []struct {
		major, minor uint32
		inode        uint64
		pid          int
		sure         bool
	}{
		{0, 0x1f, 1234, 4711, true}, {0, 0x2a, 1234, 4710, true}, {0, 0x30, 1234, 4710, false},
		{0, 0x1f, 234, 0, false}, {8, 1, 77, 0, true}, {0, 0, 5, 0, false}, {0x103, 0x12345, 88, 4713, true},
	} {
		if pid, sure := holderIn(strings.NewReader(locks), unix.Mkdev(c.major, c.minor), c.inode); pid != c.pid || sure != c.sure {
			t.Errorf("inode %d of device %x:%x: process %d, %v, want %d, %v", c.inode, c.major, c.minor, pid, sure, c.pid, c.sure)
		}
	}
}
