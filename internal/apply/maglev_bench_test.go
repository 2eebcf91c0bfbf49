package apply

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// tables returns Services with a scheduler and a size of the table.
func tables(services, endpoints int, scheduler model.Scheduler, size uint32) map[model.ServiceName]model.ServiceState {
	all := workload.Services(services, endpoints)
	for _, s := range all {
		s.Service.Scheduler, s.Service.Extras = scheduler, &model.Extras{MaglevSize: size}
	}
	return all
}

// slab returns the memory that the kernel cannot reclaim, of the whole machine.
func slab(b *testing.B) int {
	b.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.Atoi(string(regexp.MustCompile(`SUnreclaim: *(\d+)`).FindSubmatch(text)[1]))
	if err != nil {
		b.Fatal(err)
	}
	return n * 1024
}

// BenchmarkMaglevLoad fills empty tables with Services of 10 endpoints, and reports the
// memory that the kernel takes for each slot. The last ones take the budget of the node
// (3.60).
func BenchmarkMaglevLoad(b *testing.B) {
	for _, c := range []struct {
		services  int
		scheduler model.Scheduler
		size      uint32
	}{{1000, model.SourceHash, 0}, {1000, model.Maglev, 251}, {979, model.Maglev, 1021}, {61, model.Maglev, 16381}, {10000, model.Maglev, 1021}} {
		b.Run(fmt.Sprintf("%d/%s-%d", c.services, c.scheduler, c.size), func(b *testing.B) {
			router := model.NewRouter()
			router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
			router.SetServices(tables(c.services, 10, c.scheduler, c.size))
			routing := router.Routing()
			elements, taken := 0, 0
			for b.Loop() {
				b.StopTimer()
				s, before := newSandbox(b), slab(b)
				b.StartTimer()
				rules, parts := render.Load(routing, render.Added(routing))
				if _, err := s.applier.Load(parts); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				taken = slab(b) - before
				for _, size := range rules.Sizes() {
					elements += size.Elements
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(elements)/float64(b.N), "elements")
			b.ReportMetric(float64(taken)*float64(b.N)/float64(elements), "kernel-B/element")
		})
	}
}

// BenchmarkMaglevChange takes one endpoint of ten away and back, and reports the elements
// that change.
func BenchmarkMaglevChange(b *testing.B) {
	for _, c := range []struct {
		scheduler model.Scheduler
		size      uint32
	}{{model.RoundRobin, 0}, {model.SourceHash, 0}, {model.Maglev, 251}, {model.Maglev, 1021}, {model.Maglev, 16381}} {
		b.Run(fmt.Sprintf("%s-%d", c.scheduler, c.size), func(b *testing.B) {
			benchmarkChangeAmong(b, tables(50, 10, c.scheduler, c.size), 7, func(s model.ServiceState) [2]model.ServiceState {
				less := *s.Slices[0]
				less.Hosts = slices.Delete(slices.Clone(less.Hosts), 4, 5)
				return [2]model.ServiceState{{Service: s.Service, Slices: []*model.EndpointSlice{&less}}, s}
			})
		})
	}
}
