package daemon

import (
	"slices"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe"
	"github.com/nftproxy/nftproxy/internal/source"
)

// checks are the health checks of endpoints. They begin before the work of which they
// need to know: then no endpoint is known yet.
type checks struct {
	*probe.Engine
	work atomic.Pointer[work]
}

// addChecks makes the health checks that Services ask for a part of the source.
func (d *Daemon) addChecks() {
	c := &d.checks
	c.Engine = probe.NewEngine(probe.Config{Lacks: c.lacks, Serves: c.serves, Log: d.Log})
	d.Source = source.Edited(d.Source, c)
}

func (c *checks) lacks(f model.Family) bool {
	w := c.work.Load()
	return w != nil && !slices.Contains(w.node.Families, f)
}

func (c *checks) serves(f model.Frontend) (model.ServiceName, bool) {
	w := c.work.Load()
	if w == nil {
		return model.ServiceName{}, false
	}
	return w.agent.Serves(f)
}
