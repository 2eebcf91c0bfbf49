package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/systemd"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Only Services of files ask for a relay.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	return relay{New(Config{
		Relay:  func(f model.Frontend) (model.Relayed, bool) { return n.Serving().Relay(f) },
		Closes: n.Config.Own.ConntrackTCPCleanup, Log: n.ObjectLog,
		Store: systemd.NewStore(), Connections: descriptors.Relay(len(n.Config.Node.Localhost()) > 0),
		Changed: func(names ...model.ServiceName) {
			if a := feature.Find[assessor](n.Features); a != nil {
				a.Synced(names...)
			}
		},
	})}
}

// assessor finds out again whether Services have a usable server.
type assessor interface{ Synced(...model.ServiceName) }

// relay is the feature.
type relay struct{ *Server }

// FollowSync implements [feature.Observer].
func (r relay) FollowSync(s *feature.Sync) {
	if s.Err == nil {
		r.Update(s.Routes)
	}
}

// Problems implements [feature.Reporter].
func (r relay) Problems(now time.Time) []model.Notice {
	out := feature.OfMachine(model.UnusableRelayPort, r.Server.Problems()...)
	for _, f := range r.Full(now) {
		n := feature.OfMachine(model.RelayFull, f.Text)[0]
		if f.Service != (model.ServiceName{}) {
			n.Object = f.Service.Object()
		}
		out = append(out, n)
	}
	return out
}

// Collectors implements [feature.Counter].
func (r relay) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newCollector(r.Counts)}
}
