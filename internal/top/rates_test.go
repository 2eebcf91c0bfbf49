package top_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/top"
)

func number(n uint64) *uint64 { return &n }

// sampleOf has the Services of a namespace "a" with a number of connections.
func sampleOf(uptime float64, total uint64, connections map[string]uint64) *api.Sample {
	s := &api.Sample{Uptime: uptime, Instance: "x", Counted: true, Totals: api.Totals{Connections: total}}
	for name, n := range connections {
		s.Services = append(s.Services, api.LiveService{Namespace: "a", Name: name, Connections: number(n)})
	}
	return s
}

func named(rates map[string]float64) map[model.ServiceName]float64 {
	out := make(map[model.ServiceName]float64)
	for name, r := range rates {
		out[model.ServiceName{Namespace: "a", Name: name}] = r
	}
	return out
}

func TestRates(t *testing.T) {
	before := sampleOf(10, 100, map[string]uint64{"web": 60, "api": 40})
	for _, c := range []struct {
		name   string
		before *api.Sample
		change func(now *api.Sample)
		want   top.Rates
	}{
		{"two seconds", before, func(*api.Sample) {}, top.Rates{Known: true, Total: 15, Services: named(map[string]float64{"web": 15, "api": 0})}},
		{"no sample before", nil, func(*api.Sample) {}, top.Rates{}},
		{"the same reading", before, func(s *api.Sample) { s.Uptime = 10 }, top.Rates{}},
		{"restarted", before, func(s *api.Sample) { s.Instance = "y" }, top.Rates{}},
		{"the clock was set", before, func(s *api.Sample) { s.Time = s.Time.Add(-1e15) }, top.Rates{Known: true, Total: 15, Services: named(map[string]float64{"web": 15, "api": 0})}},
		{"not counted", before, func(s *api.Sample) { s.Counted = false }, top.Rates{}},
		{"counters fall", before, func(s *api.Sample) { s.Totals.Connections, s.Services[0].Connections = 5, number(5) }, top.Rates{Services: named(map[string]float64{"api": 0})}},
		{"new in the list", sampleOf(10, 100, map[string]uint64{"api": 40}), func(s *api.Sample) { s.RecentSince, s.Services[0].Recent = 11, number(7) },
			top.Rates{Known: true, Total: 15, Services: named(map[string]float64{"web": 7, "api": 0})}},
		{"new, and nothing is known before", sampleOf(10, 100, map[string]uint64{"api": 40}), func(*api.Sample) {},
			top.Rates{Known: true, Total: 15, Services: named(map[string]float64{"api": 0})}},
		{"of the detail", &api.Sample{Uptime: 10, Instance: "x", Counted: true, Totals: api.Totals{Connections: 100}, Detail: detailOf("web", 60)},
			func(s *api.Sample) { s.Services, s.Detail = nil, detailOf("web", 90) },
			top.Rates{Known: true, Total: 15, Services: named(map[string]float64{"web": 15}), Frontends: map[string]float64{"tcp 10.96.0.10:80": 15}}},
		{"of another detail", &api.Sample{Uptime: 10, Instance: "x", Counted: true, Totals: api.Totals{Connections: 100}, Detail: detailOf("api", 60)},
			func(s *api.Sample) { s.Services, s.Detail = nil, detailOf("web", 90) },
			top.Rates{Known: true, Total: 15, Services: named(nil)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := sampleOf(12, 130, nil)
			now.Services = []api.LiveService{
				{Namespace: "a", Name: "web", Connections: number(90)},
				{Namespace: "a", Name: "api", Connections: number(40)},
			}
			c.change(now)
			if diff := cmp.Diff(c.want, top.RatesOf(c.before, now)); diff != "" {
				t.Errorf("rates (-want +got):\n%s", diff)
			}
		})
	}
	if r := top.RatesOf(before, nil); r.Known {
		t.Errorf("without a sample: %v", r)
	}
}

func detailOf(name string, connections uint64) *api.LiveDetail {
	return &api.LiveDetail{
		LiveService: api.LiveService{Namespace: "a", Name: name, Connections: number(connections)},
		Ports: []api.LivePort{{ServicePort: api.ServicePort{Protocol: "tcp", Frontends: []api.Frontend{
			{Address: "10.96.0.10:80", Connections: number(connections)},
			{Address: "10.96.0.10:81"}, // not counted
		}}}},
	}
}
