package localhost

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	if len(n.Config.Node.Localhost()) == 0 {
		return nil
	}
	return listeners{n, New(Config{
		Target: func(f model.Frontend) (netip.AddrPort, bool) { return n.Serving().BehindLocalhost(f) },
		Failed: n.Events.LocalhostFailed, Limits: descriptors.Localhost(), Log: n.ObjectLog,
	})}
}

// listeners are the feature.
type listeners struct {
	node *feature.Node
	*Server
}

// FollowSync implements [feature.Observer].
func (l listeners) FollowSync(s *feature.Sync) {
	if s.Err == nil {
		l.Update(s.Routes)
	}
}

// Problems implements [feature.Reporter].
func (l listeners) Problems(time.Time) []model.Notice {
	return feature.OfMachine(model.LocalhostPort, l.Server.Problems()...)
}

// Collectors implements [feature.Counter].
func (l listeners) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newCollector(l.Counts, l.node)}
}
