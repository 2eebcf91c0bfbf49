package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Kernel is the part of connection tracking that a [Cleaner] needs.
type Kernel interface {
	// List calls f for every flow of a family and protocol. The error is EINTR
	// if some may have been left out or listed twice.
	List(model.Family, model.Protocol, func(Flow)) error
	// Delete deletes flows, all of one family and protocol, and returns how
	// many. Those that do not exist any more are no error.
	Delete([]Flow) (int, error)
}

// Config is what a [Cleaner] does besides.
type Config struct {
	// TCP deletes TCP entries to endpoints that are gone as well.
	TCP bool
	// Observe is told of every listing: how long it and the deletions took, and
	// how many entries were deleted (9.12). Nil: nobody.
	Observe func(f model.Family, took time.Duration, deleted int)
	// Log receives what was deleted and what went wrong.
	Log *slog.Logger
}

// Cleaner deletes entries to endpoints that are gone. Change takes the
// routes in, and Run or Clean does the work: a listing of a million entries takes
// seconds, which changes of rules do not wait for.
type Cleaner struct {
	Config
	kernel Kernel
	wake   chan struct{}
	still  sync.Mutex // held by Clean while it deletes, and by others while rules change

	mu    sync.Mutex   // guards known
	known []*frontends // by scope
}

// New returns a cleaner that knows no frontends yet.
func New(k Kernel, c Config) *Cleaner {
	cleaner := &Cleaner{Config: c, kernel: k, wake: make(chan struct{}, 1)}
	for _, f := range model.Families {
		cleaner.known = append(cleaner.known, newFrontends(scope{f, model.UDP}))
		if c.TCP {
			cleaner.known = append(cleaner.known, newFrontends(scope{f, model.TCP}))
		}
	}
	return cleaner
}

// Still is to be held while rules change, until Change has taken what
// follows from that in: so no entry is deleted that only the new rules make right.
// It is held by others for some milliseconds at the most.
func (c *Cleaner) Still() sync.Locker { return &c.still }

// Change takes the changes since the last call, and the addresses on which
// NodePorts with the unspecified address are served. The rules for these must be
// in force (13.21). Nothing of the changes is kept.
func (c *Cleaner) Change(changes []model.RouteChange, nodePorts []netip.Addr) {
	defer c.call()
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := make(copies)
	for i := range changes {
		c.take(changes[i].Frontend, changes[i].New, shared)
	}
	c.move(nodePorts)
}

// call has Run clean up.
func (c *Cleaner) call() {
	select {
	case c.wake <- struct{}{}:
	default: // it will
	}
}

// Run cleans up whenever routes were taken in, until ctx ends.
func (c *Cleaner) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.Clean()
		}
	}
}

func (c *Cleaner) move(nodePorts []netip.Addr) {
	for _, fs := range c.known {
		fs.move(nodePorts)
	}
}

// take remembers the route of a frontend; nil: it has none any longer.
func (c *Cleaner) take(f model.Frontend, route *model.Route, shared copies) {
	s := scope{model.FamilyOf(f.Address), f.Protocol}
	i := slices.IndexFunc(c.known, func(fs *frontends) bool { return fs.scope == s })
	if i < 0 {
		return // its flows are left alone
	}
	if at := netip.AddrPortFrom(f.Address, f.Port); route == nil {
		c.known[i].remove(at)
	} else {
		c.known[i].set(at, shared.of(route.Choice))
	}
}

// Clean deletes the entries that the routes have made stale. Nothing is listed
// where no frontend and no serving endpoint has changed (9.1). What goes wrong is
// logged, and tried again with the next routes, whatever these bring (9.10).
func (c *Cleaner) Clean() {
	for _, fs := range c.known {
		if version, changed := c.version(fs); changed {
			c.cleanUp(fs, version)
		}
	}
}

// version returns which routes there are to clean up after, if there are.
func (c *Cleaner) version(fs *frontends) (version int, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fs.version, fs.changed
}

func (c *Cleaner) cleanUp(fs *frontends, version int) {
	start := time.Now()
	deleted, err := c.sweep(fs)
	took := time.Since(start)
	if c.Observe != nil {
		c.Observe(fs.family, took, deleted)
	}
	if deleted > 0 {
		c.Log.Info("connections to endpoints that are gone were forgotten", "family", fs.family,
			"protocol", fs.protocol, "connections", deleted, "duration", took.Round(time.Microsecond))
	}
	if err != nil {
		c.Log.Error("connections to endpoints that are gone may go on; the next sync tries again",
			"family", fs.family, "protocol", fs.protocol, "error", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fs.version == version { // else there is more to do
		fs.settle()
	}
}

// step is how many entries are deleted while rules stand still: a change may
// have to wait for that.
const step = 256

// sweep deletes the stale flows through frontends. An interrupted listing is used as
// far as it goes before it is repeated (9.10).
func (c *Cleaner) sweep(fs *frontends) (deleted int, err error) {
	err = netlinkio.Retry(netlinkio.Fades, func() error {
		var stale []Flow
		listErr := c.kernel.List(fs.family, fs.protocol, func(f Flow) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if fs.stale(f) {
				stale = append(stale, f)
			}
		})
		n, deleteErr := c.delete(fs, stale)
		deleted += n
		return errors.Join(listErr, deleteErr)
	})
	return deleted, err
}

// delete deletes flows that are still stale.
func (c *Cleaner) delete(fs *frontends, flows []Flow) (deleted int, err error) {
	for some := range slices.Chunk(flows, step) {
		n, err := c.deleteStill(fs, some)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

func (c *Cleaner) deleteStill(fs *frontends, flows []Flow) (int, error) {
	c.still.Lock()
	defer c.still.Unlock()
	c.mu.Lock()
	flows = slices.DeleteFunc(flows, func(f Flow) bool { return !fs.stale(f) })
	c.mu.Unlock()
	return c.kernel.Delete(flows)
}
