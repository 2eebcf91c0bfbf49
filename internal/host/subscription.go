package host

import (
	"context"
	"errors"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addressBuffer is the size of the receive buffer in bytes. The kernel doubles it
// and holds ten thousand changes in it (measured with 6.18): pods may start
// together by the thousand. The default of 208 KiB is full after less than 500.
const addressBuffer = 4 << 20

// subscription is a stream of the addresses that come and go.
type subscription struct {
	updates chan netlink.AddrUpdate
	cancel  context.CancelFunc
	err     error // set when updates is closed
}

// subscribe begins a subscription that ends with ctx.
func subscribe(ctx context.Context) (*subscription, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{updates: make(chan netlink.AddrUpdate), cancel: cancel}
	options := netlink.AddrSubscribeOptions{
		ErrorCallback:          func(err error) { s.err = err },
		ReceiveBufferSize:      addressBuffer,
		ReceiveBufferForceSize: true,
	}
	err := netlink.AddrSubscribeWithOptions(s.updates, ctx.Done(), options)
	if errors.Is(err, unix.EPERM) { // root of a user namespace, before kernel 5.18
		options.ReceiveBufferForceSize = false
		err = netlink.AddrSubscribeWithOptions(s.updates, ctx.Done(), options)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// addresses yields addresses that come or go, until the subscription ends.
func (s *subscription) addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		defer s.cancel()
		for u := range s.updates {
			if a, ok := netip.AddrFromSlice(u.LinkAddress.IP); ok && !yield(a.Unmap()) {
				return
			}
		}
	}
}
