package conntrack

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"golang.org/x/sys/unix"
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
	scopes []scope
	known  map[scope]frontends // at the last clean-up
	failed map[scope]bool      // it did not do all of its work
}

// scope is what one listing covers.
type scope struct {
	family   model.Family
	protocol model.Protocol
}

// New returns a cleaner that knows no frontends yet.
func New(k Kernel, c Config) *Cleaner {
	cleaner := &Cleaner{Config: c, kernel: k, known: make(map[scope]frontends), failed: make(map[scope]bool)}
	for _, f := range model.Families {
		cleaner.scopes = append(cleaner.scopes, scope{f, model.UDP})
		if c.TCP {
			cleaner.scopes = append(cleaner.scopes, scope{f, model.TCP})
		}
	}
	return cleaner
}

// Clean deletes the entries that the routing has made stale. The rules for it
// must be in force, and none other may be before Clean returns (13.21). Nothing
// is listed where no frontend and no serving endpoint has changed since the
// last time (9.1).
//
// What goes wrong is logged, and tried again with the next routing, whatever
// that changes (9.10).
func (c *Cleaner) Clean(r *model.Routing) {
	all := frontendsOf(r, c.scopes)
	for _, s := range c.scopes {
		c.clean(s, all[s])
	}
}

func (c *Cleaner) clean(s scope, current frontends) {
	known := c.known[s]
	if !c.failed[s] && maps.EqualFunc(known, current, slices.Equal) {
		return
	}
	judge := current.and(known)
	start := time.Now()
	deleted, err := c.sweep(s, judge)
	took := time.Since(start)
	if c.Observe != nil {
		c.Observe(s.family, took, deleted)
	}
	if deleted > 0 {
		c.Log.Info("connections to endpoints that are gone were forgotten", "family", s.family,
			"protocol", s.protocol, "connections", deleted, "duration", took.Round(time.Microsecond))
	}
	if c.failed[s] = err != nil; c.failed[s] {
		c.Log.Error("connections to endpoints that are gone may go on; the next sync tries again",
			"family", s.family, "protocol", s.protocol, "error", err)
		current = judge // the frontends that are gone stay known
	}
	c.known[s] = current
}

// attempts is how often an interrupted listing is taken (9.10).
const attempts = 5

// sweep deletes the stale flows of a scope. An interrupted listing is used as
// far as it goes before it is taken again.
func (c *Cleaner) sweep(s scope, judge frontends) (deleted int, err error) {
	for range attempts {
		var stale []Flow
		listErr := c.kernel.List(s.family, s.protocol, func(f Flow) {
			if judge.stale(f) {
				stale = append(stale, f)
			}
		})
		n, deleteErr := c.kernel.Delete(stale)
		deleted += n
		if err = errors.Join(listErr, deleteErr); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return deleted, err
}
