// Package netlinkio holds what all users of netlink share: how long to wait for
// an answer, which errors are worth another attempt, how to make it, and how
// attributes are read.
package netlinkio

import (
	"errors"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Patience is how long one datagram may take. The kernel answers during the
// request, so this matters for lost answers only.
const Patience = time.Second

// Renew sets the deadline of the next datagram. Netlink sockets support deadlines,
// so there is no error.
func Renew(c *netlink.Conn) { _ = c.SetDeadline(time.Now().Add(Patience)) }

// passing are transient errors: a signal or another writer interfered, the kernel
// lacked memory or buffer space, or the answer got lost.
var passing = []error{unix.EINTR, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, os.ErrDeadlineExceeded}

// Fades reports whether the next attempt may succeed.
func Fades(err error) bool {
	for _, p := range passing {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

const (
	attempts   = 5
	firstPause = 20 * time.Millisecond // doubles with each attempt
)

// Retry calls f up to five times, until again is false for its error, and
// returns the last error.
func Retry(again func(error) bool, f func() error) error {
	err := f()
	for pause, n := firstPause, 1; n < attempts && again(err); pause, n = 2*pause, n+1 {
		time.Sleep(pause)
		err = f()
	}
	return err
}
