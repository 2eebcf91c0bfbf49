package apply

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

func forSizes(b *testing.B, f func(b *testing.B, services, endpoints int)) {
	for _, size := range [][2]int{{1000, 4}, {10000, 4}, {5006, 50}, {44128, 1}, {100000, 4}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) { f(b, size[0], size[1]) })
	}
}

// commitFrom plans and commits, and reports the size of the transaction.
func commitFrom(b *testing.B, s *sandbox, current, desired *nft.Ruleset) {
	b.Helper()
	p := plan.Diff(current, plan.Settle(current, desired))
	generation, err := s.Generation()
	if err != nil {
		b.Fatal(err)
	}
	size, err := s.Commit(kernel.Prepared{Plan: p}, generation)
	if err != nil {
		b.Fatal(err)
	}
	if len(desired.Tables) > 0 {
		b.ReportMetric(float64(len(p.Changes)), "changes/op")
		b.ReportMetric(float64(size.Bytes), "wire-B/op")
	}
}

// BenchmarkLoad fills empty tables.
func BenchmarkLoad(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		desired := workload.Scenario(services, endpoints, 0)
		s := newSandbox(b)
		b.ReportAllocs()
		for b.Loop() {
			commitFrom(b, s, &nft.Ruleset{}, desired)
			b.StopTimer()
			commitFrom(b, s, desired, &nft.Ruleset{})
			b.StartTimer()
		}
	})
}

// BenchmarkPrepareLoad is what a first sync does beside the kernel: it decides about all Services,
// renders their rules, and encodes them.
func BenchmarkPrepareLoad(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		all := workload.Services(services, endpoints)
		b.ReportAllocs()
		for b.Loop() {
			router := model.NewRouter()
			router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
			_, parts := render.Fill(router.Base(), func(yield func([]model.RouteChange) bool) { router.Fill(all, 4096, yield) })
			n := 0
			for p := range prepareParts(parts) {
				n += len(p.Changes)
			}
			if n < services*(2+endpoints) {
				b.Fatalf("%d changes", n)
			}
		}
	})
}

// BenchmarkRestart takes a node from all Services to the finding that the kernel has
// their rules.
func BenchmarkRestart(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		all := workload.Services(services, endpoints)
		s := newServed(b, all).sandbox
		b.ReportAllocs()
		for b.Loop() {
			router := model.NewRouter()
			router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
			router.SetServices(all)
			_, delta := render.Start(router.Routing())
			if p, err := New(s.Conn, s.applier.log).Apply(delta); err != nil || !p.Empty() {
				b.Fatalf("%d changes, %v", len(p.Changes), err)
			}
		}
	})
}

// BenchmarkResume is [BenchmarkRestart] with the record that the process before has left.
func BenchmarkResume(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		all := workload.Services(services, endpoints)
		s := newServed(b, all)
		record := s.applier.Record(render.Render(s.router.Routing()))
		b.ReportAllocs()
		for b.Loop() {
			router := model.NewRouter()
			router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
			router.SetServices(all)
			_, delta := render.Start(router.Routing())
			if !New(s.Conn, s.applier.log).Resume(delta.After, record) {
				b.Fatal("the record is not used")
			}
		}
	})
}

// BenchmarkCompare reads back and finds nothing to do.
func BenchmarkCompare(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		desired := workload.Scenario(services, endpoints, 0)
		s := newSandbox(b)
		commitFrom(b, s, &nft.Ruleset{}, desired)
		b.ReportAllocs()
		for b.Loop() {
			p, _, err := s.applier.Plan(desired)
			if err != nil || !p.Empty() {
				b.Fatalf("%d changes, %v", len(p.Changes), err)
			}
		}
	})
}

// BenchmarkCompareChanged reads back what has other slots or a Service more.
func BenchmarkCompareChanged(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		desired, moved := workload.Scenario(services, endpoints, 0), workload.Scenario(services, endpoints, 0)
		for rest := moved.Tables[0].Set(nft.EndpointsMap).Elements; len(rest) > 0; {
			var group []nft.Element
			group, rest = plan.CutFrontend(rest)
			group[0].Value, group[endpoints-1].Value = group[endpoints-1].Value, group[0].Value
		}
		for name, held := range map[string]*nft.Ruleset{"moved": moved, "deleted": workload.Scenario(services+1, endpoints, 0)} {
			b.Run(name, func(b *testing.B) {
				s := newSandbox(b)
				commitFrom(b, s, &nft.Ruleset{}, held)
				b.ReportAllocs()
				for b.Loop() {
					if p, _, err := s.applier.Plan(desired); err != nil || p.Empty() != (name == "moved") {
						b.Fatalf("%d changes, %v", len(p.Changes), err)
					}
				}
			})
		}
	})
}

// BenchmarkReplaceEndpoint commits one changed element; the plan is ready.
func BenchmarkReplaceEndpoint(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		rulesets := [2]*nft.Ruleset{workload.Scenario(services, endpoints, 0), workload.Scenario(services, endpoints, 1)}
		s := newSandbox(b)
		commitFrom(b, s, &nft.Ruleset{}, rulesets[0])
		rulesets[1] = plan.Settle(rulesets[0], rulesets[1])
		plans := [2]*plan.Plan{plan.Diff(rulesets[0], rulesets[1]), plan.Diff(rulesets[1], rulesets[0])}
		generation, err := s.Generation()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(plans[0].Changes)), "changes/op")
		i := 0
		for b.Loop() {
			if _, err := s.Commit(kernel.Prepared{Plan: plans[i%2]}, generation); err != nil {
				b.Fatal(err)
			}
			generation++
			i++
		}
	})
}

// benchmarkChange takes one Service through two states, from the state to the
// kernel's answer.
func benchmarkChange(b *testing.B, states func(s model.ServiceState) [2]model.ServiceState) {
	for _, size := range [][2]int{{1000, 4}, {10000, 4}, {5006, 50}, {44128, 1}, {100000, 4}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			benchmarkChangeAmong(b, workload.Services(size[0], size[1]), 7, states)
		})
	}
}

// benchmarkChangeAmong does so with one of these Services.
func benchmarkChangeAmong(b *testing.B, all map[model.ServiceName]model.ServiceState, service int, states func(s model.ServiceState) [2]model.ServiceState) {
	b.Helper()
	n := newServed(b, all)
	n.alternate(b, workload.ServiceName(service), states(all[workload.ServiceName(service)]))
}

// served is a kernel with the rules of Services, and what patches them.
type served struct {
	*sandbox
	router  *model.Router
	routing *model.Routing
	rules   *render.State
}

func newServed(b *testing.B, all map[model.ServiceName]model.ServiceState) *served {
	b.Helper()
	n := &served{sandbox: newSandbox(b), router: model.NewRouter()}
	n.router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	n.router.SetServices(all)
	n.routing = n.router.Routing()
	rules, delta := render.Start(n.routing)
	if _, err := n.applier.Apply(delta); err != nil {
		b.Fatal(err)
	}
	n.rules = rules
	return n
}

// alternate takes a Service to two states in turn for as long as the benchmark
// runs.
func (n *served) alternate(b *testing.B, service model.ServiceName, both [2]model.ServiceState) {
	b.Helper()
	b.ReportAllocs()
	changes := 0
	for i := 0; b.Loop(); i++ {
		p, err := n.applier.Apply(n.rules.Change(n.router.SetServices(map[model.ServiceName]model.ServiceState{service: both[i%2]}), nil))
		if err != nil {
			b.Fatal(err)
		}
		changes = len(p.Changes)
	}
	b.ReportMetric(float64(changes), "changes/op")
}

// BenchmarkChangeEndpoint replaces one endpoint.
func BenchmarkChangeEndpoint(b *testing.B) { benchmarkChange(b, workload.ReplaceEndpoint) }

// BenchmarkChangeWeighted replaces one endpoint of 501 behind three frontends;
// one has the weight 1, the others 100.
func BenchmarkChangeWeighted(b *testing.B) {
	all := workload.Services(1, 501)
	s := all[workload.ServiceName(0)]
	s.Service.External = &model.External{LoadBalancerIPs: []netip.Addr{workload.Addr("203.0.113.1")}, ExternalIPs: []netip.Addr{workload.Addr("203.0.113.2")}}
	for i := range s.Slices[0].Hosts {
		s.Slices[0].Hosts[i].Weight = 100
	}
	s.Slices[0].Hosts[500].Weight = 1
	benchmarkChangeAmong(b, all, 0, workload.ReplaceEndpoint)
}

// BenchmarkScale takes an endpoint away and brings it back.
func BenchmarkScale(b *testing.B) { benchmarkChange(b, scaled) }

// scaled returns a Service without its last endpoint, and the original.
func scaled(s model.ServiceState) [2]model.ServiceState {
	less := *s.Slices[0]
	less.Hosts = less.Hosts[:len(less.Hosts)-1]
	return [2]model.ServiceState{{Service: s.Service, Slices: []*model.EndpointSlice{&less}}, s}
}

// BenchmarkAddAndDelete deletes a Service and brings it back.
func BenchmarkAddAndDelete(b *testing.B) {
	benchmarkChange(b, func(s model.ServiceState) [2]model.ServiceState { return [2]model.ServiceState{{}, s} })
}
