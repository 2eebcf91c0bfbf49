package slowstart

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	e := NewEngine()
	e.node = n
	return e
}

// Collectors implements [feature.Counter].
func (e *Engine) Collectors() []prometheus.Collector {
	starting := scraped.Gauge("nftproxy_slow_start_endpoints",
		"Endpoints of a Service that start slowly, for at most 100 Services that have such; the others together have no names.", "namespace", "service")
	return []prometheus.Collector{scraped.New(func(out scraped.Values) error {
		counts := countStarting(e.node.Serving())
		rest := 0
		for _, n := range counts {
			rest += n
		}
		for _, name := range feature.Highest(counts) {
			out.Add(starting, float64(counts[name]), name.Namespace, name.Name)
			rest -= counts[name]
		}
		if rest > 0 {
			out.Add(starting, float64(rest), "", "")
		}
		return nil
	}, starting)}
}

// countStarting returns how many endpoints of each Service start slowly and can be chosen. Services without such are left out.
func countStarting(s feature.Serving) map[model.ServiceName]int {
	found := make(map[model.ServiceName]map[netip.AddrPort]struct{})
	s.Routes(func(r *model.Route) bool {
		if len(r.Service.Extra().Starting) == 0 { // of most
			return true
		}
		for _, choice := range [...][]model.Endpoint{r.Choice.Cluster, r.Choice.Local} {
			for _, e := range choice {
				if r.Service.Start(e) == nil {
					continue
				}
				if found[r.Service.Name] == nil {
					found[r.Service.Name] = make(map[netip.AddrPort]struct{})
				}
				found[r.Service.Name][e.Address()] = struct{}{}
			}
		}
		return true
	})
	counts := make(map[model.ServiceName]int, len(found))
	for name, endpoints := range found {
		counts[name] = len(endpoints)
	}
	return counts
}
