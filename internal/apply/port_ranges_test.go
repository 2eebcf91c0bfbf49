package apply

import (
	"bufio"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// wide returns Services of 4 endpoints with many UDP ports each: as one range, or one by
// one.
func wide(services, ports int, oneByOne bool) map[model.ServiceName]model.ServiceState {
	all := workload.Services(services, 4)
	for _, s := range all {
		s.Service.Ports = nil
		if !oneByOne {
			s.Service.Extras = &model.Extras{Ranges: []model.PortRange{workload.PortRange(model.UDP, 10000, uint16(9999+ports), 0)}}
			continue
		}
		slice := s.Slices[0]
		slice.Ports = nil
		for i := range ports {
			p := model.ServicePort{Name: fmt.Sprintf("p%d", i), Protocol: model.UDP, Port: uint16(10000 + i)}
			s.Service.Ports = append(s.Service.Ports, p)
			slice.Ports = append(slice.Ports, model.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
	}
	return all
}

// TestForeignChangesOfRanges: what another program does to the sets and maps of ranges
// is found and corrected, also what we would never write (4.61).
func TestForeignChangesOfRanges(t *testing.T) {
	s, state := newSandbox(t), renderedServices(t, wide(2, 50, false))
	s.apply(t, state)
	for _, change := range []string{
		"delete element ip nftproxy ranges { 10.96.0.0 . udp . 10000-10049 }",
		"add element ip nftproxy ranges { 10.96.0.0 . udp . 10050-10060 : 0:5 }",
		"add element ip nftproxy ranges { 10.96.0.0/31 . udp . 53 : 0:5 }",
		"add element ip nftproxy range-services { 10.96.0.0 . udp . 5:2710 : drop }",
		"delete element ip nftproxy range-services { 10.96.0.1 . udp . 0:2710 }",
		"delete element ip nftproxy range-endpoints { 10.96.0.0 . udp . 0:2710 . 1 }",
		"add element ip nftproxy range-endpoints { 10.96.0.0 . udp . 0:2711 . 1 : 10.0.0.1 }",
		"add element ip nftproxy range-port-endpoints { 10.96.0.0 . udp . 0:2711 . 1 : 10.0.0.1 . 5 }",
		"delete element ip nftproxy range-addresses { 10.96.0.0 }",
		"add element ip nftproxy range-source-ranges { 10.96.0.0 . udp . 10000-10005 . 10.0.0.0/8 }",
		"add element ip nftproxy range-hairpin { 10.0.0.1 . 10.0.0.1 . udp }",
		"flush chain ip nftproxy range-prerouting",
		"insert rule ip nftproxy range-dispatch dnat to ip daddr . meta l4proto . meta priority . numgen inc mod 2 map @range-endpoints",
	} {
		s.nft(t, change)
		p, _, err := s.applier.Plan(state)
		if err != nil || p.Empty() {
			t.Errorf("after %q: %v changes, %v", change, p, err)
		}
		s.apply(t, state)
		if p, _, err = s.applier.Plan(state); err != nil || !p.Empty() {
			t.Errorf("after %q and a repair: %v, %v", change, p, err)
		}
	}
}

func renderedServices(t testing.TB, all map[model.ServiceName]model.ServiceState) *nft.Ruleset {
	t.Helper()
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	router.SetServices(all)
	return render.Render(router.Routing())
}

// TestRangeKeepsItsSlots: a replaced endpoint of a range is one element, whatever the
// order of the endpoints is (13.13).
func TestRangeKeepsItsSlots(t *testing.T) {
	n := newFollower(newFake())
	all := wide(3, 50, false)
	n.follow(t, n.router.SetServices(all), true)
	name := workload.ServiceName(1)
	slice := *all[name].Slices[0]
	for i := range 8 {
		slice.Hosts = slices.Clone(slice.Hosts)
		slice.Hosts[i%4].Address = netip.AddrFrom4([4]byte{10, 200, 0, byte(i)})
		moved := slice
		p, err := n.applier.Apply(n.rules.Change(n.router.SetServices(map[model.ServiceName]model.ServiceState{
			name: {Service: all[name].Service, Slices: []*model.EndpointSlice{&moved}},
		}), nil))
		if err != nil || len(p.Changes) != 1 {
			t.Errorf("%v, %v, want one change", p, err)
		}
	}
}

// kernelMemory returns the memory that the kernel has for tables, in KiB.
func kernelMemory(b *testing.B) (sum int) {
	b.Helper()
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var name string
		var n int
		_, _ = fmt.Sscan(lines.Text(), &name, &n)
		if slices.Contains([]string{"SUnreclaim:", "VmallocUsed:", "Percpu:"}, name) {
			sum += n
		}
	}
	return sum
}

func forWide(b *testing.B, f func(b *testing.B, all map[model.ServiceName]model.ServiceState)) {
	for _, services := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%dx1-range", services), func(b *testing.B) { f(b, wide(services, 50, false)) })
	}
	b.Run("1000x50-ports", func(b *testing.B) { f(b, wide(1000, 50, true)) })
}

// BenchmarkPortRanges loads Services with 50 ports each.
func BenchmarkPortRanges(b *testing.B) {
	forWide(b, func(b *testing.B, all map[model.ServiceName]model.ServiceState) {
		desired := renderedServices(b, all)
		elements := 0
		for _, s := range desired.Tables[0].Sets {
			elements += len(s.Elements)
		}
		for b.Loop() {
			b.StopTimer()
			s, before := newSandbox(b), kernelMemory(b)
			b.StartTimer()
			commitFrom(b, s, &nft.Ruleset{}, desired)
			b.StopTimer()
			b.ReportMetric(float64(kernelMemory(b)-before), "kernel-KiB")
			commitFrom(b, s, desired, &nft.Ruleset{})
			b.StartTimer()
		}
		b.ReportMetric(float64(elements), "elements")
	})
}

// BenchmarkPortRangeEndpoint replaces one endpoint of one of these Services.
func BenchmarkPortRangeEndpoint(b *testing.B) {
	forWide(b, func(b *testing.B, all map[model.ServiceName]model.ServiceState) {
		benchmarkChangeAmong(b, all, 500, workload.ReplaceEndpoint)
	})
}

// BenchmarkPortRangeScale takes an endpoint of one of these Services away, and brings it back.
func BenchmarkPortRangeScale(b *testing.B) {
	forWide(b, func(b *testing.B, all map[model.ServiceName]model.ServiceState) {
		benchmarkChangeAmong(b, all, 500, scaled)
	})
}

// BenchmarkPortRange takes the range of one of these Services away, and brings it back.
func BenchmarkPortRange(b *testing.B) {
	forWide(b, func(b *testing.B, all map[model.ServiceName]model.ServiceState) {
		benchmarkChangeAmong(b, all, 500, func(s model.ServiceState) [2]model.ServiceState {
			without := *s.Service
			without.Extras, without.Ports = nil, nil
			return [2]model.ServiceState{{Service: &without, Slices: s.Slices}, s}
		})
	})
}

// TestNumberOfRangeChanges: a packet under way may have found the number of a range that
// is replaced in the meantime. So what the new number leads to is there before the change
// of the numbers, and what the old one leads to is there until after it.
func TestNumberOfRangeChanges(t *testing.T) {
	before, after := wide(1, 50, false), wide(1, 50, false)
	after[workload.ServiceName(0)].Service.Extras = &model.Extras{Ranges: []model.PortRange{workload.PortRange(model.UDP, 9000, 10000, 0)}}
	phases := plan.Diff(renderedServices(t, before), renderedServices(t, after)).Phases()
	phaseOf := func(verb plan.Verb, set string) int {
		return slices.IndexFunc(phases, func(p *plan.Plan) bool {
			return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Verb == verb && c.Kind() == "element" && c.Set.Name == set })
		})
	}
	for _, set := range []string{nft.RangeServicesMap, nft.RangeEndpointsMap} {
		added, deleted, turn := phaseOf(plan.Add, set), phaseOf(plan.Delete, set), phaseOf(plan.Add, nft.RangesMap)
		if added < 0 || added >= turn || deleted <= turn || phaseOf(plan.Delete, nft.RangesMap) != turn {
			t.Errorf("%s: added in transaction %d and deleted in %d, and the number changes in %d", set, added, deleted, turn)
		}
	}
}

// TestPortMovesToRange: a port that moves from a frontend of its own to a range, or back,
// has one of them in each transaction, before and after.
func TestPortMovesToRange(t *testing.T) {
	exact, ranged := wide(1, 1, true), wide(1, 50, false)
	for _, c := range []struct {
		before, after map[model.ServiceName]model.ServiceState
	}{{exact, ranged}, {ranged, exact}} {
		before, after := renderedServices(t, c.before), renderedServices(t, c.after)
		k := newFake()
		changes := 0
		k.seen = func(before, after *nft.Ruleset) {
			if changes++; before.Table(model.IPv4) != nil {
				checkBetween(t, before.Table(model.IPv4), after.Table(model.IPv4))
			}
		}
		a := New(k, slog.New(slog.DiscardHandler))
		for _, rs := range []*nft.Ruleset{before, after} {
			if _, err := a.Apply(nft.FromNothing(rs)); err != nil {
				t.Fatal(err)
			}
		}
		if changes < 4 {
			t.Errorf("%d transactions", changes)
		}
	}
}
