package nftconn_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// TestManyDescriptors: a connection beyond what select knows is an error, and leaves no descriptor
// open.
func TestManyDescriptors(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < 2*unix.FD_SETSIZE {
		raised := syscall.Rlimit{Cur: 2 * unix.FD_SETSIZE, Max: max(limit.Max, 2*unix.FD_SETSIZE)}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
			t.Fatal(err)
		}
	}
	for last := uintptr(0); last < unix.FD_SETSIZE; {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		last = f.Fd()
	}
	before := descriptors(t)
	c, err := nftconn.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListTables(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v, want %v", err, unix.EMFILE)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and %d were", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
