package daemon

import (
	"cmp"
	"path/filepath"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/feature/names"
)

// resolvConf names the servers of DNS of this machine.
const resolvConf = "/etc/resolv.conf"

// followNames makes the engine for names of servers, which only files have: an author of
// Services of an API server could make every node ask for any name.
func (d *Daemon) followNames() {
	own := &d.Config.Own
	c := names.Config{
		Servers: own.NameServers(), ResolvConf: resolvConf, HostsFile: names.HostsFile, Timeout: own.DNSTimeout, MinTTL: own.DNSMinTTL, MaxTTL: own.DNSMaxTTL,
		Owner: d.checks.owner, Observe: d.checks.lookedUp, Log: d.Log,
	}
	if directory := cmp.Or(d.StateDirectory, d.RuntimeDirectory); directory != "" {
		c.State = filepath.Join(directory, names.FileName)
	}
	d.names = names.NewEngine(c)
}

// owner returns the Service that has a frontend on this node.
func (c *checks) owner(f model.Frontend) (model.ServiceName, bool) {
	w := c.work.Load()
	if w == nil {
		return model.ServiceName{}, false
	}
	port, ok := w.agent.PortOf(f)
	return port.Service, ok
}

// lookedUp counts a lookup of a name.
func (c *checks) lookedUp(failed bool) {
	if w := c.work.Load(); w != nil {
		w.metrics.LookedUp(failed)
	}
}

// reviewNames has names looked at again when frontends may have changed.
func (w *work) reviewNames(s *agent.Sync) {
	if len(s.Routes) > 0 || s.Compared {
		w.names.Synced()
	}
}
