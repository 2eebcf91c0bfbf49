// Package netlinkio holds what all users of netlink share: how long to wait for
// an answer, which errors are worth another attempt, how to make it, and how
// attributes are read.
package netlinkio

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	vnetlink "github.com/vishvananda/netlink"
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
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
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

// subscriptionBuffer is the size of the receive buffer of a [Subscription] in bytes. The kernel
// doubles it and holds ten thousand changes of addresses in it (measured with 6.18): pods may
// start together by the thousand. The default of 208 KiB is full after less than 500.
const subscriptionBuffer = 4 << 20

// Subscription is a stream of changes that the kernel reports, such as addresses of interfaces
// that come and go.
type Subscription[T any] struct {
	Updates chan T
	cancel  context.CancelFunc
	err     error
}

// SubscribeToAddresses begins a stream of the addresses that come and go.
func SubscribeToAddresses(ctx context.Context) (*Subscription[vnetlink.AddrUpdate], error) {
	return subscribe(ctx, func(updates chan vnetlink.AddrUpdate, done <-chan struct{}, failed func(error), force bool) error {
		return vnetlink.AddrSubscribeWithOptions(updates, done, vnetlink.AddrSubscribeOptions{
			ErrorCallback: failed, ReceiveBufferSize: subscriptionBuffer, ReceiveBufferForceSize: force,
		})
	})
}

// SubscribeToLinks begins a stream of the interfaces that come, change and go.
func SubscribeToLinks(ctx context.Context) (*Subscription[vnetlink.LinkUpdate], error) {
	return subscribe(ctx, func(updates chan vnetlink.LinkUpdate, done <-chan struct{}, failed func(error), force bool) error {
		return vnetlink.LinkSubscribeWithOptions(updates, done, vnetlink.LinkSubscribeOptions{
			ErrorCallback: failed, ReceiveBufferSize: subscriptionBuffer, ReceiveBufferForceSize: force,
		})
	})
}

// subscribe begins a stream, which ends with ctx, or when the kernel has dropped some of the
// changes. open sends changes to a channel until done is closed, closes it then, and calls
// failed before with the cause. force asks for the buffer beyond net.core.rmem_max.
func subscribe[T any](ctx context.Context, open func(updates chan T, done <-chan struct{}, failed func(error), force bool) error) (*Subscription[T], error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Subscription[T]{Updates: make(chan T), cancel: cancel}
	failed := func(err error) { s.err = err }
	err := open(s.Updates, ctx.Done(), failed, true)
	if errors.Is(err, unix.EPERM) { // root of a user namespace, before kernel 5.18
		err = open(s.Updates, ctx.Done(), failed, false)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// Err returns why the stream has ended, once Updates is closed.
func (s *Subscription[T]) Err() error { return s.err }

// Close ends the stream, also if it has changes that were not read: their sender waits for
// that.
func (s *Subscription[T]) Close() {
	s.cancel()
	for range s.Updates {
	}
}
