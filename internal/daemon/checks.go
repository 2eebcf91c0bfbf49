package daemon

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// hasFiles reports whether objects come from files, alone or beside an API server.
func (d *Daemon) hasFiles() bool { return d.Cluster == nil || d.Joined != nil }

// checks is what other parts ask of health checks.
type checks interface {
	Sampled(to netip.AddrPort, failure string, at time.Time)
	Passive() []model.ServiceName
	Failing() []feature.Failing
}

// sampled takes the outcome of a sampled connection to an endpoint.
func (w *work) sampled(to netip.AddrPort, o conntrack.Outcome, at time.Time) {
	c := feature.Find[checks](w.Features)
	if c == nil {
		return
	}
	failure := ""
	if o != conntrack.Answered {
		failure = o.String()
	}
	c.Sampled(to, failure, at)
}

// unsampled returns a notice for each Service whose passive check learns nothing.
func (w *work) unsampled() (out []model.Notice) {
	c := feature.Find[checks](w.Features)
	if c == nil {
		return nil
	}
	for _, name := range c.Passive() {
		out = append(out, model.Notice{Object: name.Object(), Reason: model.NotObserved, Message: "its passive health check learns nothing: start nftproxy with --observe=failures"})
	}
	return out
}
