package observe

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

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
