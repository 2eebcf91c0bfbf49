package apply

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// limitingClients gives Services a limit per client each, of another value, and returns the
// two states of a Service that changes its value.
func limitingClients(services int) (all map[model.ServiceName]model.ServiceState, both [2]model.ServiceState) {
	all = workload.Services(max(services, 1000)+2, 4)
	limit := func(i, n int) model.ServiceState {
		s := all[workload.ServiceName(i)]
		changed := *s.Service
		changed.Extras = &model.Extras{Limits: model.Limits{RatePerClient: model.Rate{Amount: uint32(n), Burst: 10}}}
		return model.ServiceState{Service: &changed, Slices: s.Slices}
	}
	for i := range services {
		all[workload.ServiceName(i)] = limit(i, 100+i)
	}
	return all, [2]model.ServiceState{limit(0, 1), limit(0, 2)}
}

// BenchmarkChangeClientLimits gives a Service another value, and then changes an endpoint of
// it and one of a Service without limits, beside others with as many values.
func BenchmarkChangeClientLimits(b *testing.B) {
	for _, values := range []int{1, 100, 1000} {
		all, both := limitingClients(values)
		first, last := workload.ServiceName(0), workload.ServiceName(len(all)-1)
		b.Run(fmt.Sprintf("%d/value", values), func(b *testing.B) { newServed(b, all).alternate(b, first, both) })
		b.Run(fmt.Sprintf("%d/endpoint", values), func(b *testing.B) {
			newServed(b, all).alternate(b, first, workload.ReplaceEndpoint(all[first]))
		})
		b.Run(fmt.Sprintf("%d/others", values), func(b *testing.B) { newServed(b, all).alternate(b, last, workload.ReplaceEndpoint(all[last])) })
	}
}
