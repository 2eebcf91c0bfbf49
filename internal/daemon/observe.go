package daemon

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/internal/words"
)

// newSamples returns what judges samples of connections; nil: the rules log none.
func (w *work) newSamples() *traffic.Samples {
	if !w.node.Observe.Failures() {
		return nil
	}
	s := traffic.NewSamples(conntrack.Netlink{}.OutcomesOf, w.Log)
	s.Judged = w.sampled
	return s
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
		Words: func(name model.ServiceName) words.Vocabulary { return words.Of(w.IsBalance(name)) },
	}
	c.Connections = traffic.NewConnections(conntrack.Netlink{}.EntriesOf, host.System("").CountsBytes, w.Log)
	c.Logged = logged(w.Config.Own.LogConnections)
	return traffic.NewCollector(c)
}

// failureTime is how often failing endpoints are looked for, for events.
const failureTime = 5 * time.Second

// followFailures writes events about endpoints that fail sampled connections, until ctx ends.
func (w *work) followFailures(ctx context.Context) {
	tick := time.NewTicker(failureTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.events.Failures(failureEvents(w.samples.Failures(now), w.ofFailures()))
		}
	}
}

// ofFailures returns the function that makes problems of failures. It looks for the filters of a family once.
func (w *work) ofFailures() func(*traffic.Failure) model.Notice {
	found := make(map[model.Family][]string)
	filters := func(f model.Family) []string {
		if _, known := found[f]; !known {
			found[f] = w.machine.Filters(f)
		}
		return found[f]
	}
	return func(f *traffic.Failure) model.Notice { return f.Notice(w, filters) }
}

// failureEvents returns what failures mean for each Service.
func failureEvents(all []traffic.Failure, of func(*traffic.Failure) model.Notice) map[events.Failure]string {
	out := make(map[events.Failure]string, len(all))
	for i := range all {
		p := of(&all[i])
		for _, port := range all[i].Ports {
			f := events.Failure{Service: port.Service, Reason: string(p.Reason)}
			if out[f] == "" { // the status has the others
				out[f] = p.Message
			}
		}
	}
	return out
}

// logged returns which outcomes have a line in the log; nil: none.
func logged(value string) func(model.Outcome) bool {
	switch value {
	case config.LogRefused:
		return func(o model.Outcome) bool { return o == model.RefusedByRules }
	case config.LogFailed:
		return model.Outcome.Failed
	case config.LogAll:
		return func(model.Outcome) bool { return true }
	}
	return nil
}
