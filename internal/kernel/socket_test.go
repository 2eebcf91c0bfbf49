package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestSocketIsNotPolled: Go's poller does not wait for the socket of a connection, because each
// answer would wake a thread.
func TestSocketIsNotPolled(t *testing.T) {
	s := newSandbox(t)
	watched, err := netlink.Dial(unix.NETLINK_NETFILTER, nil) // one that it waits for
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	raw, err := watched.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	other := 0
	if err := raw.Control(func(fd uintptr) { other = int(fd) }); err != nil {
		t.Fatal(err)
	}
	if isPolled(t, s.socket.fd) || !isPolled(t, other) {
		t.Errorf("polled: %t, and another one: %t", isPolled(t, s.socket.fd), isPolled(t, other))
	}
}

// isPolled reports whether a file is in an epoll instance of this process.
func isPolled(t *testing.T, fd int) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if to, _ := os.Readlink(path); to != "anon_inode:[eventpoll]" {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(info)) {
			if n := 0; strings.HasPrefix(line, "tfd:") {
				if _, err := fmt.Sscanf(line, "tfd: %d", &n); err == nil && n == fd {
					return true
				}
			}
		}
	}
	return false
}

// TestSocketAhead: what was received ahead is received next, and once.
func TestSocketAhead(t *testing.T) {
	s := newSandbox(t)
	if s.socket.hasDatagram() || s.socket.peekDatagram() != nil {
		t.Error("there is something before a question")
	}
	if _, err := s.nl.Send(newQuestion(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)); err != nil {
		t.Fatal(err)
	}
	seen := string(s.socket.peekDatagram())
	got, err := s.socket.receiveDatagram()
	if err != nil || seen == "" || string(got) != seen {
		t.Errorf("seen %q, received %q, %v", seen, got, err)
	}
	if s.socket.hasDatagram() {
		t.Error("the answer is there again")
	}
}

// TestSocketWaits: an answer that does not come is waited for, and then an error.
func TestSocketWaits(t *testing.T) {
	s := newSandbox(t)
	short := unix.NsecToTimeval(1e6)
	if err := unix.SetsockoptTimeval(s.socket.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &short); err != nil {
		t.Fatal(err)
	}
	if _, err := s.nl.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("received %v", err)
	}
	if _, err := s.Generation(); err != nil {
		t.Errorf("the next question: %v", err)
	}
}

// TestSocketClosed: a closed connection is an error for each use, not the file that has
// its number by then.
func TestSocketClosed(t *testing.T) {
	s := newSandbox(t)
	if err := s.nl.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.nl.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
	if _, err := s.Generation(); !errors.Is(err, unix.EBADF) {
		t.Errorf("question: %v", err)
	}
	if _, err := s.Commit(Prepared{Plan: plan.Diff(&nft.Ruleset{}, workload.Scenario(1, 1, 0))}, AnyGeneration); !errors.Is(err, unix.EBADF) {
		t.Errorf("transaction: %v", err)
	}
}
