package daemon

import (
	"context"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

// addEditors makes addresses of interfaces, names of servers, changed servers, the health checks
// that Services ask for, and the list of drained endpoints a part of the source.
func (d *Daemon) addEditors(ctx context.Context) {
	editors := d.makeFeatures(ctx)
	if d.changed != nil {
		editors = append(editors, orderedEditor{30, d.changed})
	}
	if d.drains != nil {
		editors = append(editors, orderedEditor{50, d.drains})
	}
	d.Source = source.Edited(d.Source, inOrder(editors)...)
}

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
