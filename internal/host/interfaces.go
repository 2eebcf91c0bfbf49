package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Interfaces holds the addresses of this machine's interfaces. It lists them on
// demand, and only if they may have changed: a node has an interface for each pod.
// Except SetFollower, its methods are safe for concurrent use.
type Interfaces struct {
	from     AddressSource
	log      *slog.Logger
	follower Follower
	stale    atomic.Bool // known may be out of date
	moved    atomic.Bool // the same for networks
	all      atomic.Bool // every address matters

	mu    sync.Mutex
	known []netip.Addr
	// networks lists the networks of the interfaces if the caller wants them.
	networks []netip.Prefix
	failure  string // last reported
	retry    backoff
	waiting  bool // a retry is scheduled
}

// AddressSource lists the addresses that may serve NodePorts or health checks of Services.
type AddressSource interface {
	ServingAddresses() ([]netip.Addr, error)
}

// ServingAddresses implements [AddressSource]: it returns the addresses of the machine.
func (System) ServingAddresses() ([]netip.Addr, error) { return ServingAddresses() }

// Follower learns when the addresses for NodePorts may have changed. It must not block.
type Follower interface{ AddressesChanged() }

func NewInterfaces(from AddressSource, log *slog.Logger) *Interfaces {
	i := &Interfaces{from: from, log: log}
	i.Expire()
	return i
}

// SetFollower must be called before the other methods.
func (i *Interfaces) SetFollower(f Follower) { i.follower = f }

func (i *Interfaces) reportChange() {
	if i.follower != nil {
		i.follower.AddressesChanged()
	}
}

// Expire makes the next calls of Addresses and Networks list them again.
func (i *Interfaces) Expire() {
	i.stale.Store(true)
	i.moved.Store(true)
}

// Networks returns the networks of the interfaces, in the same way.
func (i *Interfaces) Networks() []netip.Prefix {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.moved.Swap(false) {
		return i.networks
	}
	networks, err := Networks()
	if err != nil {
		i.moved.Store(true)
		i.logFailure(err)
		return i.networks
	}
	i.networks = networks
	return networks
}

// WatchAll has every address reported from now on, not only those that may serve
// NodePorts: ranges of ports must not be served on any of them (1.54), and the networks of all
// count (4.71).
func (i *Interfaces) WatchAll() {
	if !i.all.Swap(true) {
		i.Expire()
	}
}

// Addresses returns the addresses; the result must not be changed. If they cannot
// be listed it returns the last known ones, none if there are none, and schedules
// a retry (6.10).
func (i *Interfaces) Addresses() []netip.Addr {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.stale.Swap(false) {
		return i.known
	}
	listed := false
	defer func() {
		if !listed {
			i.Expire()
		}
	}()
	addresses, err := i.from.ServingAddresses()
	if err != nil {
		i.logFailure(err)
		return i.known
	}
	if listed = true; i.failure != "" {
		i.log.Info("addresses of this node can be listed again")
	}
	i.known, i.failure, i.retry = addresses, "", backoff{}
	return i.known
}

// logFailure logs an error, unless the last attempt had the same one, and schedules a
// retry.
func (i *Interfaces) logFailure(err error) {
	if i.failure != err.Error() {
		i.failure = err.Error()
		i.log.Error("cannot list the addresses of this node; the last known ones stay in use", "error", err)
	}
	if i.waiting {
		return
	}
	i.waiting = true
	time.AfterFunc(i.retry.next(), func() {
		i.mu.Lock()
		i.waiting = false
		i.mu.Unlock()
		i.reportChange()
	})
}

// Watch expires the addresses when an interface gets or loses one, until ctx ends,
// and reports a change if that address serves NodePorts on a node of that
// configuration, or if all addresses matter. The watch is in place when it returns.
func (i *Interfaces) Watch(ctx context.Context, node model.Config) error {
	s, err := netlinkio.SubscribeToAddresses(ctx)
	if err != nil {
		return fmt.Errorf("watch interface addresses: %w", err)
	}
	go followUpdates(ctx, s, netlinkio.SubscribeToAddresses, func(u netlink.AddrUpdate) {
		if a, ok := netip.AddrFromSlice(u.LinkAddress.IP); ok {
			i.Event(a.Unmap(), node)
		}
	}, func() {
		i.Expire()
		i.reportChange()
	}, i.log)
	return nil
}

// followUpdates calls each for the changes of a subscription until ctx ends. The subscription ends when
// the kernel has dropped some of them; it is then renewed, and renewed is called. s may be nil.
func followUpdates[T any](ctx context.Context, s *netlinkio.Subscription[T], subscribe func(context.Context) (*netlinkio.Subscription[T], error),
	each func(T), renewed func(), log *slog.Logger,
) {
	var retry backoff
	for ctx.Err() == nil {
		var err error
		if s == nil {
			if s, err = subscribe(ctx); err == nil {
				renewed()
			}
		}
		if err != nil {
			logUnwatched(log, err)
		} else {
			began := time.Now()
			for u := range s.Updates {
				each(u)
			}
			if ctx.Err() != nil {
				return
			}
			log.Warn("changes of interface addresses were lost; all are listed again", "error", s.Err())
			if time.Since(began) > quiet {
				retry = backoff{}
			}
			s = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.next()):
		}
	}
}

// logUnwatched logs why addresses are not followed, and what to do. Until it works, the known addresses
// stay in use.
func logUnwatched(log *slog.Logger, err error) {
	log.Error("the addresses of this machine cannot be watched: the known ones stay in use; trying again", "error", err, "remedy", watchRemedy(err))
}

// watchRemedy says what makes a subscription work that has failed.
func watchRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "raise the limit of open files (LimitNOFILE)"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.EAFNOSUPPORT):
		return "let the process open sockets of AF_NETLINK (RestrictAddressFamilies, seccomp)"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
		return "give the process, or the machine, more memory"
	}
	return "see the error; nothing has to be restarted"
}

// Event handles an address that an interface got or lost. Most belong to interfaces of
// pods and are ignored: they are in no range. With "primary", health checks
// depend on the addresses, but NodePorts do not; a loopback address can serve
// health checks only.
func (i *Interfaces) Event(a netip.Addr, node model.Config) {
	serves := node.ServesNodePorts(a) || i.all.Load()
	if isLinkLocal(a) || !serves && !a.IsLoopback() && len(node.NodePortAddresses) > 0 {
		return
	}
	if i.Expire(); serves {
		i.reportChange()
	}
}

const (
	// firstRetry is the pause after a failure; it doubles up to lastRetry, and is
	// back to firstRetry after quiet.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	quiet      = 5 * time.Minute
)

// backoff is a pause that doubles with each use. The zero value is ready.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstRetry), lastRetry)
	return b.last
}
