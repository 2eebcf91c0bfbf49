package compare

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// commit is what the kernel reports about one nftables transaction.
type commit struct {
	seen time.Time
	// added and removed are the IPv4 addresses that the objects of the
	// transaction name, of those that start with 10.
	added, removed map[netip.Addr]bool
}

// kernelWatch reports the nftables transactions on a host by any program: it
// observes every measurement. The kernel sends a message for each object that
// is added or removed, and one at the end of the transaction.
type kernelWatch struct {
	socket  *os.File
	commits chan commit // closed when err is set
	err     error
}

// receiveBuffer holds the messages about the largest transaction. If it were
// too small, the watch would fail.
const receiveBuffer = 1 << 30

// watchKernel watches until the end of the test.
func watchKernel(t testing.TB, on *netlab.Host) *kernelWatch {
	t.Helper()
	w := &kernelWatch{commits: make(chan commit, 1<<16)}
	err := on.Do(func() (err error) { w.socket, err = nftablesEvents(); return err })
	if err != nil {
		t.Fatalf("watch nftables: %v", err)
	}
	t.Cleanup(func() { w.socket.Close() })
	go w.run()
	return w
}

// nftablesEvents opens a socket in the namespace of the calling thread.
func nftablesEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "nftables events")
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

func (w *kernelWatch) run() {
	defer close(w.commits)
	buf := make([]byte, 1<<20)
	c := newCommit()
	for {
		n, err := w.socket.Read(buf)
		seen := time.Now()
		if err != nil {
			w.err = fmt.Errorf("read nftables events: %w", err)
			return
		}
		for messages := buf[:n]; len(messages) >= unix.NLMSG_HDRLEN; {
			length := int(binary.NativeEndian.Uint32(messages))
			if length < unix.NLMSG_HDRLEN || length > len(messages) {
				w.err = fmt.Errorf("nftables event of %d bytes in %d", length, len(messages))
				return
			}
			if c.note(messages[:length]) {
				c.seen = seen
				w.commits <- c
				c = newCommit()
			}
			messages = messages[min(len(messages), (length+3)&^3):]
		}
	}
}

func newCommit() commit {
	return commit{added: map[netip.Addr]bool{}, removed: map[netip.Addr]bool{}}
}

// note reads one message and reports whether it is the last of a transaction.
// Attributes are aligned, and no header of one looks like an address with 10 as
// its first byte and an even second one above 15: it would be that of an
// attribute of thousands of bytes.
func (c *commit) note(message []byte) (last bool) {
	into := c.added
	switch kind := binary.NativeEndian.Uint16(message[4:]) & 0xff; kind {
	case unix.NFT_MSG_NEWGEN:
		return true
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
		into = c.removed
	}
	for i := unix.NLMSG_HDRLEN + 4; i+4 <= len(message); i += 4 {
		if message[i] == 10 {
			into[netip.AddrFrom4([4]byte(message[i:]))] = true
		}
	}
	return false
}

// next returns the next transaction, or false if there is none for some time.
func (w *kernelWatch) next(t testing.TB, wait time.Duration) (commit, bool) {
	t.Helper()
	select {
	case c, ok := <-w.commits:
		if !ok {
			t.Fatal(w.err)
		}
		return c, true
	case <-time.After(wait):
		return commit{}, false
	}
}

// pending drains the unread transactions and returns their number.
func (w *kernelWatch) pending(t testing.TB) (n int) {
	t.Helper()
	for ; len(w.commits) > 0; n++ {
		w.next(t, testbed.Patience)
	}
	return n
}
