package daemon

import (
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// newTraffic returns the reader of what the rules log; nil: they log nothing.
func (w *work) newTraffic() *traffic.Collector {
	if !w.node.Observe.Refusals() {
		return nil
	}
	group := w.node.Observe.Group
	c := traffic.Config{
		Open: func() (traffic.Source, error) {
			r, err := nflog.Open(group)
			if err != nil {
				return nil, err // a nil reader is not a nil source
			}
			return r, nil
		},
		Named: w.agent.PortOf, Holder: w.agent.Holder, Log: w.Log,
	}
	if w.Config.Own.LogConnections == config.LogRefused {
		c.Connections = w.Log
	}
	return traffic.NewCollector(c)
}
