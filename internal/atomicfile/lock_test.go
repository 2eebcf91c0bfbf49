package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		if want := fmt.Sprintf("lock %s: process %d (", at, os.Getpid()); err == nil || !strings.HasPrefix(err.Error(), want) {
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

func TestHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 99 00:1f:1234 0 EOF
2: FLOCK  ADVISORY  WRITE 4711 00:1f:1234 0 EOF
2: -> FLOCK  ADVISORY  WRITE 4712 00:1f:1234 0 EOF
3: FLOCK  ADVISORY  WRITE 0 08:01:77 0 EOF
malformed
`
	for inode, want := range map[uint64]int{1234: 4711, 234: 0, 77: 0, 5: 0} {
		if got := holderIn(strings.NewReader(locks), inode); got != want {
			t.Errorf("inode %d: process %d, want %d", inode, got, want)
		}
	}
}
