package daemon

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// facts implements [report.Facts].
type facts struct {
	*work
	*observed
	samples *traffic.Samples // nil: the rules log none
}

func (w *work) facts() report.Facts {
	f := facts{work: w, observed: &observed{level: w.node.Observe.Level, words: w}}
	if o := feature.Find[interface {
		Observed() (*traffic.Collector, *traffic.Samples)
	}](w.Features); o != nil {
		var collector *traffic.Collector
		if collector, f.samples = o.Observed(); collector != nil {
			f.observed.Traffic = collector
		}
	}
	return f
}

// SourceState implements [report.Facts].
func (f facts) SourceState() report.SourceState {
	s := f.Source.State()
	out := report.SourceState{Err: s.Err, Since: s.Since, Warnings: s.Warnings}
	if f.Cluster != nil {
		out.Seen = f.Cluster.Seen()
	}
	return out
}

// AddToStatus implements [report.Facts].
func (f facts) AddToStatus(s *api.Status, now time.Time) {
	s.Observe = f.observing(now)
	if a := feature.Find[interface {
		Announced() []model.AnnouncedAddress
	}](f.Features); a != nil {
		s.Announced = a.Announced()
	}
}

// AddToDescription implements [report.Facts].
func (f facts) AddToDescription(d *api.Description, v *model.View, now time.Time) {
	name := v.Service.Name
	if c := f.changed(); c != nil {
		d.Runtime = runtimeChanges(drain.Changes{name: c.Changes()[name]})
	}
	if n := feature.Find[interface {
		ProblemsOf(model.ServiceName, time.Time) []string
	}](f.Features); n != nil {
		d.Notices = append(d.Notices, n.ProblemsOf(name, now)...)
	}
	if r := feature.Find[interface {
		Failure(model.Family) string
		FullOf(model.ServiceName, time.Time) []string
	}](f.Features); r != nil && d.Relay != "" {
		report.AddRelayFailures(d, r.Failure)
		d.Notices = append(d.Notices, r.FullOf(name, now)...)
	}
	if f.samples != nil {
		addSamples(d, name, func(p model.PortName, e netip.AddrPort) [conntrack.Outcomes]int { return f.samples.Of(p, e, now) },
			func(p model.PortName) (int, int) { return f.samples.DroppedOf(p, now) })
	}
}
