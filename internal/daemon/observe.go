package daemon

import (
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// newSamples returns what judges samples of connections; nil: the rules log none.
func (w *work) newSamples() *traffic.Samples {
	if !w.node.Observe.Failures() {
		return nil
	}
	return traffic.NewSamples(conntrack.Netlink{}.OutcomesOf, w.Log)
}

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
		Named: w.agent.PortOf, Holder: w.agent.Holder, Samples: w.samples, Log: w.Log,
	}
	if w.Config.Own.LogConnections == config.LogRefused {
		c.Connections = w.Log
	}
	return traffic.NewCollector(c)
}
