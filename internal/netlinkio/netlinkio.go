// Package netlinkio holds what all users of netlink share: how long to wait for
// an answer, which errors are worth another attempt, and how attributes are read.
package netlinkio

import (
	"errors"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Patience is how long one datagram may take. The kernel answers while it is
// asked, so that this is for what gets lost.
const Patience = time.Second

// Renew lets the next datagram take its time. A socket without deadlines is none
// of the kernel's.
func Renew(c *netlink.Conn) { _ = c.SetDeadline(time.Now().Add(Patience)) }

// passing are errors that come and go: a signal or another writer came between,
// the kernel lacked memory or room, or the answer got lost.
var passing = []error{unix.EINTR, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, os.ErrDeadlineExceeded}

// Fades tells whether an error can be gone with the next attempt.
func Fades(err error) bool {
	for _, p := range passing {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}
