package testbed

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Commit is what the kernel reports about one nftables transaction.
type Commit struct {
	Seen time.Time
	// Added and Removed are the IPv4 addresses of a prefix that the objects of the
	// transaction name.
	Added, Removed map[netip.Addr]bool
}

// KernelWatch reports the nftables transactions in a network namespace by any program: it
// observes every measurement. The kernel sends a message for each object that
// is added or removed, and one at the end of the transaction.
type KernelWatch struct {
	Commits chan Commit // closed when there can be no more

	socket *os.File
	prefix netip.Prefix
	err    error
}

// PodNetwork has the addresses of pods, and no other bytes of a message look like them: they would be the header
// of an attribute of thousands of bytes, as these all have an even second byte above 15.
var PodNetwork = netip.MustParsePrefix("10.0.0.0/8")

// receiveBuffer holds the messages about the largest transaction. If it were
// too small, the watch would fail.
const receiveBuffer = 1 << 30

// WatchKernel watches the namespace in which do runs functions, for addresses of a prefix, until the end of
// the test. Attributes of messages are aligned, and the prefix must be one that no header of them looks like.
func WatchKernel(t testing.TB, do func(func() error) error, prefix netip.Prefix) *KernelWatch {
	t.Helper()
	w := &KernelWatch{Commits: make(chan Commit, 1<<16), prefix: prefix}
	err := do(func() (err error) { w.socket, err = nftablesEvents(); return err })
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

func (w *KernelWatch) run() {
	defer close(w.Commits)
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
			if c.note(messages[:length], w.prefix) {
				c.Seen = seen
				w.Commits <- c
				c = newCommit()
			}
			messages = messages[min(len(messages), (length+3)&^3):]
		}
	}
}

func newCommit() Commit {
	return Commit{Added: map[netip.Addr]bool{}, Removed: map[netip.Addr]bool{}}
}

// note reads one message and reports whether it is the last of a transaction.
func (c *Commit) note(message []byte, prefix netip.Prefix) (last bool) {
	into := c.Added
	switch kind := binary.NativeEndian.Uint16(message[4:]) & 0xff; kind {
	case unix.NFT_MSG_NEWGEN:
		return true
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
		into = c.Removed
	}
	for i := unix.NLMSG_HDRLEN + 4; i+4 <= len(message); i += 4 {
		if a := netip.AddrFrom4([4]byte(message[i:])); prefix.Contains(a) {
			into[a] = true
		}
	}
	return false
}

// Next returns the next transaction, or false if there is none for some time.
func (w *KernelWatch) Next(t testing.TB, wait time.Duration) (Commit, bool) {
	t.Helper()
	late, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	select {
	case c, ok := <-w.Commits:
		if !ok {
			t.Fatal(w.err)
		}
		return c, true
	case <-late.Done():
		return Commit{}, false
	}
}

// Pending drains the unread transactions and returns their number.
func (w *KernelWatch) Pending(t testing.TB) (n int) {
	t.Helper()
	for ; len(w.Commits) > 0; n++ {
		w.Next(t, Patience)
	}
	return n
}
