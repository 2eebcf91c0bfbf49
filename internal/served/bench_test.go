package served_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// routing has 10,000 Services of four endpoints.
func routing() *model.Routing {
	r := model.NewRouter()
	r.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	r.SetServices(workload.Services(10_000, 4))
	return r.Routing()
}

func BenchmarkOf(b *testing.B) {
	r := routing()
	for b.Loop() {
		for i := range r.Routes {
			served.Of(&r.Routes[i], r.Scheduler)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(r.Routes)), "ns/frontend")
}

func BenchmarkRead(b *testing.B) {
	r := routing()
	rules := render.Render(r)
	for b.Loop() {
		for _, f := range model.Families {
			for range served.Read(rules.Table(f)).All() {
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(r.Routes)), "ns/frontend")
}
