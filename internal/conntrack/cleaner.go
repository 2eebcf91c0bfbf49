package conntrack

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
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

// Cleaner deletes entries to endpoints that are gone. It is not safe for
// concurrent use.
type Cleaner struct {
	Config
	kernel Kernel
	known  []*frontends // by scope
}

// New returns a cleaner that knows no frontends yet.
func New(k Kernel, c Config) *Cleaner {
	cleaner := &Cleaner{Config: c, kernel: k}
	for _, f := range model.Families {
		cleaner.known = append(cleaner.known, newFrontends(scope{f, model.UDP}))
		if c.TCP {
			cleaner.known = append(cleaner.known, newFrontends(scope{f, model.TCP}))
		}
	}
	return cleaner
}

// Reset takes the routes of all frontends, as Change takes some. It comes first,
// and wherever the changes since the last call are not known.
func (c *Cleaner) Reset(routes []model.Route) {
	shared := make(copies)
	given := make(map[model.Frontend]struct{})
	for i := range routes {
		if f := routes[i].Frontend; c.take(f, &routes[i], shared) {
			given[f] = struct{}{}
		}
	}
	for _, fs := range c.known {
		for f := range fs.serving {
			if _, ok := given[model.Frontend{Address: f.Addr(), Protocol: fs.protocol, Port: f.Port()}]; !ok {
				fs.remove(f)
			}
		}
	}
	c.clean()
}

// Change takes the changes since the last call and deletes the entries that the
// routes have made stale. The rules for these must be in force, and none other
// may be before it returns (13.21). Nothing is listed where no frontend and no
// serving endpoint has changed (9.1), and nothing of the changes is kept.
//
// What goes wrong is logged, and tried again with the next call, whatever that
// brings (9.10).
func (c *Cleaner) Change(changes []model.RouteChange) {
	shared := make(copies)
	for i := range changes {
		c.take(changes[i].Frontend, changes[i].New, shared)
	}
	c.clean()
}

// take remembers the route of a frontend; nil: it has none any longer. It
// returns false for a frontend whose flows are let be.
func (c *Cleaner) take(f model.Frontend, route *model.Route, shared copies) bool {
	s := scope{model.FamilyOf(f.Address), f.Protocol}
	i := slices.IndexFunc(c.known, func(fs *frontends) bool { return fs.scope == s })
	if i < 0 {
		return false
	}
	if at := netip.AddrPortFrom(f.Address, f.Port); route == nil {
		c.known[i].remove(at)
	} else {
		c.known[i].set(at, shared.of(route.Choice.Serving))
	}
	return true
}

// clean cleans up where something has changed, or where that failed before.
func (c *Cleaner) clean() {
	for _, fs := range c.known {
		if fs.changed {
			c.cleanUp(fs)
		}
	}
}

func (c *Cleaner) cleanUp(fs *frontends) {
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
	fs.settle()
}

// attempts is how often a listing is taken that fails for the moment (9.10).
const attempts = 5

// sweep deletes the stale flows through frontends. An interrupted listing is used as
// far as it goes before it is taken again.
func (c *Cleaner) sweep(fs *frontends) (deleted int, err error) {
	for range attempts {
		var stale []Flow
		listErr := c.kernel.List(fs.family, fs.protocol, func(f Flow) {
			if fs.stale(f) {
				stale = append(stale, f)
			}
		})
		n, deleteErr := c.kernel.Delete(stale)
		deleted += n
		if err = errors.Join(listErr, deleteErr); !netlinkio.Fades(err) {
			break
		}
	}
	return deleted, err
}
