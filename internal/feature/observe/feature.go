// Package observe reads what the rules log about connections, and finds the endpoints that do not answer.
package observe

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	level := n.Config.Node.Observe
	if !level.Refusals() {
		return nil
	}
	o := &observer{node: n}
	if level.Failures() {
		o.samples = traffic.NewSamples(tracking{}, o, n.Log)
	}
	o.collector = traffic.NewCollector(traffic.Config{
		Node: logger{n}, Samples: o.samples, Connections: traffic.NewConnections(tracking{}, n.Log), Log: n.Log,
	})
	return o
}

// tracking is the connection tracking of this machine.
type tracking struct {
	conntrack.Netlink
	host.System
}

// logger implements [traffic.Node].
type logger struct{ *feature.Node }

// Open implements [traffic.Node].
func (l logger) Open() (traffic.Source, error) {
	r, err := nflog.Open(l.Config.Node.Observe.Group)
	if err != nil {
		return nil, err // a nil reader is not a nil source
	}
	return r, nil
}

// Logs implements [traffic.Node].
func (l logger) Logs(o model.Outcome) bool {
	switch l.Config.Own.LogConnections {
	case config.LogRefused:
		return o == model.RefusedByRules
	case config.LogFailed:
		return o.Failed()
	}
	return l.Config.Own.LogConnections == config.LogAll
}

// PortOf implements [traffic.Node].
func (l logger) PortOf(f model.Frontend) (model.PortName, bool) { return l.Serving().PortOf(f) }

// Holder implements [traffic.Node].
func (l logger) Holder(a netip.Addr) (model.ServiceName, bool) { return l.Serving().Holder(a) }

// IsBalance implements [traffic.Node].
func (l logger) IsBalance(name model.ServiceName) bool { return l.Serving().IsBalance(name) }

// observer is the feature. It does nothing where the kernel turned out to log nothing.
type observer struct {
	node      *feature.Node
	collector *traffic.Collector
	samples   *traffic.Samples // nil: the rules log none
}

// Observed returns what reads the log of the rules, and finds the outcomes of samples; nil: the rules log no such.
func (o *observer) Observed() (*traffic.Collector, *traffic.Samples) {
	if !o.node.Config.Node.Observe.Refusals() {
		return nil, nil
	}
	return o.collector, o.samples
}

// Run implements [feature.Runner].
func (o *observer) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	collector, samples := o.Observed()
	if collector != nil {
		all.Go(func() { collector.Run(ctx) })
	}
	if samples != nil {
		all.Go(func() { samples.Run(ctx) })
		if o.node.Events.Writes() {
			o.followFailures(ctx)
		}
	}
}

// Judge implements [traffic.Judge]: passive health checks learn from the outcome of a sampled connection to an endpoint.
func (o *observer) Judge(to netip.AddrPort, outcome conntrack.Outcome, at time.Time) {
	checks := feature.Find[interface {
		Sampled(to netip.AddrPort, failure string, at time.Time)
	}](o.node.Features)
	if checks == nil {
		return
	}
	failure := ""
	if outcome != conntrack.Answered {
		failure = outcome.String()
	}
	checks.Sampled(to, failure, at)
}

// Problems implements [feature.Reporter].
func (o *observer) Problems(now time.Time) (out []model.Notice) {
	collector, samples := o.Observed()
	if collector != nil {
		if s := collector.State(); s.Err != nil {
			out = feature.OfMachine(model.NotObserved, s.Err.Error())
		}
	}
	if samples != nil {
		describe := o.describer()
		for _, f := range samples.Failures(now) {
			out = append(out, describe(&f))
		}
	}
	return out
}

// Collectors implements [feature.Counter].
func (o *observer) Collectors() (out []prometheus.Collector) {
	collector, samples := o.Observed()
	if collector != nil {
		out = append(out, newCollector(collector.State))
	}
	if samples != nil {
		out = append(out, newSampleCollector(samples.Totals))
	}
	return out
}

const failureTime = 5 * time.Second

// followFailures writes events about endpoints that fail sampled connections, until ctx ends.
func (o *observer) followFailures(ctx context.Context) {
	tick := time.NewTicker(failureTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			o.node.Events.Failures(failureEvents(o.samples.Failures(now), o.describer()))
		}
	}
}

// describer returns the function that makes problems of failures. It looks for the filters of a family once.
func (o *observer) describer() func(*traffic.Failure) model.Notice {
	serving := o.node.Serving()
	found := make(map[model.Family][]string)
	filters := func(f model.Family) []string {
		if _, known := found[f]; !known {
			found[f] = serving.Filters(f)
		}
		return found[f]
	}
	return func(f *traffic.Failure) model.Notice { return f.Notice(serving, filters) }
}

// failureEvents returns what failures mean for each Service.
func failureEvents(all []traffic.Failure, describe func(*traffic.Failure) model.Notice) map[events.Failure]string {
	out := make(map[events.Failure]string, len(all))
	for i := range all {
		p := describe(&all[i])
		for _, port := range all[i].Ports {
			f := events.Failure{Service: port.Service, Reason: string(p.Reason)}
			if out[f] == "" { // the status has the others
				out[f] = p.Message
			}
		}
	}
	return out
}

// newCollector exports what was read of the log of the rules.
func newCollector(state func() traffic.State) prometheus.Collector {
	events := scraped.Counter("nftproxy_observe_events_total", "Messages of the rules about refused connections that were read, which are samples, by reason.", "reason")
	lost := scraped.Counter("nftproxy_observe_lost_total", "Messages of the rules about refused connections that the kernel has dropped because they were not read fast enough.")
	up := scraped.Gauge("nftproxy_observe_up", "1 if messages of the rules about refused connections are read, else 0; the status says why not.")
	return scraped.New(func(out scraped.Values) error {
		now := state()
		out.Add(up, scraped.Yes(now.Err == nil))
		out.Add(lost, float64(now.Lost))
		for reason, n := range now.Events {
			out.Add(events, float64(n), reason)
		}
		return nil
	}, events, lost, up)
}

// newSampleCollector exports how many samples of connections endpoints have answered.
func newSampleCollector(totals func() []traffic.SampleTotal) prometheus.Collector {
	sampled := scraped.Counter("nftproxy_sampled_connections_total",
		"Samples of TCP connections to a Service, by what their endpoint did within two seconds: answered, refused or unanswered; dropped were lost on the machine.",
		"namespace", "service", "outcome")
	return scraped.New(func(out scraped.Values) error {
		for _, t := range totals() {
			for o, n := range t.Outcomes {
				out.Add(sampled, float64(n), t.Service.Namespace, t.Service.Name, conntrack.Outcome(o).String())
			}
		}
		return nil
	}, sampled)
}
