// Package netlinkio holds the timeout and retry policy of all netlink users, and reads
// netlink attributes.
package netlinkio

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Patience is the timeout for one datagram. The kernel answers while it is asked, so
// only lost answers take longer.
const Patience = time.Second

// Renew restarts the timeout for the next datagram. The error is ignored: only fake
// sockets in tests lack deadlines.
func Renew(c *netlink.Conn) { _ = c.SetDeadline(time.Now().Add(Patience)) }

// transient errors: a signal or another writer interfered, the kernel lacked memory or
// buffer space, or the answer was lost.
var transient = []error{unix.EINTR, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, os.ErrDeadlineExceeded}

// Fades reports whether another attempt can succeed after an error.
func Fades(err error) bool {
	return slices.ContainsFunc(transient, func(t error) bool { return errors.Is(err, t) })
}
