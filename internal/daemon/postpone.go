package daemon

import (
	"math/rand/v2"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
)

// postpone makes the source wait for a random time if traffic does not depend on
// it: rules of an earlier run are in the kernel (13.24). After an update of a
// DaemonSet many nodes would read all objects at the same time.
func (d *Daemon) postpone() {
	most := d.Config.Own.StartJitter
	if most <= 0 || !hasRules() {
		return
	}
	delay := rand.N(most)
	d.Cluster.Delay, d.reads = delay, time.Now().Add(delay)
	d.Log.Info("the rules of an earlier run stay until Services and EndpointSlices are read", "in", delay.Round(time.Millisecond))
}

// hasRules reports whether the kernel has our tables. Errors are reported when the
// rules are opened for the agent.
func hasRules() bool {
	rules, err := kernel.Open()
	if err != nil {
		return false
	}
	defer func() { _ = rules.Close() }()
	empty, err := rules.Empty()
	return err == nil && !empty
}

// pending returns when the oldest unserved request for a sync was made. The first
// one counts from when the source is read.
func (d *Daemon) pending(requested time.Time) time.Time {
	if !requested.IsZero() && requested.Before(d.reads) {
		return d.reads
	}
	return requested
}
