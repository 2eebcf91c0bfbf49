package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
)

// largeState is a Service at the limits of an API server: that many ports, and
// that many slices of so many hosts, each with all ports.
func largeState(ports, slices, hosts int) model.ServiceState {
	s := &model.Service{
		Name: named(0), ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		ExternalPolicy: model.PolicyLocal, HealthCheckNodePort: 32000,
	}
	var all []model.EndpointPort
	for i := range ports {
		name := fmt.Sprintf("port-%d", i)
		s.Ports = append(s.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(i + 1)})
		all = append(all, model.EndpointPort{Name: name, Protocol: model.TCP, Port: uint16(i + 1)})
	}
	state := model.ServiceState{Service: s}
	for i := range slices {
		slice := &model.EndpointSlice{Namespace: "default", Name: fmt.Sprintf("slice-%d", i), Service: s.Name.Name, Family: model.IPv4, Ports: all}
		for j := range hosts {
			n := j*slices + i // the addresses of the slices are mixed
			slice.Hosts = append(slice.Hosts, model.Host{
				Address: netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}), Ready: true, Serving: true, Node: fmt.Sprintf("node-%d", n%1000),
			})
		}
		state.Slices = append(state.Slices, slice)
	}
	return state
}

// otherHost returns the state with another address in place of the first.
func otherHost(s model.ServiceState) model.ServiceState {
	slice := *s.Slices[0]
	slice.Hosts = append([]model.Host{}, slice.Hosts...)
	slice.Hosts[0].Address = netip.MustParseAddr("10.1.2.3")
	return model.ServiceState{Service: s.Service, Slices: append([]*model.EndpointSlice{&slice}, s.Slices[1:]...)}
}

// newLargeLab is an agent that has synced a Service and two states between which
// one endpoint differs.
func newLargeLab(tb testing.TB, state model.ServiceState) func(model.ServiceState) *Sync {
	tb.Helper()
	var last *Sync
	log := slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))
	a := New(Config{
		Applier: apply.New(&kernel{}, log), Log: log, Node: model.Config{NodeName: "node-1"},
		Observers: []func(*Sync){func(s *Sync) { last = s }},
	})
	sync := func(cause Cause, s model.ServiceState) *Sync {
		a.update = &model.Update{Services: map[model.ServiceName]model.ServiceState{named(0): s}}
		if !a.sync(cause) {
			tb.Fatal(last.Err)
		}
		return last
	}
	sync(Start, state)
	return func(s model.ServiceState) *Sync { return sync(Change, s) }
}

// BenchmarkLargeService has the cost of one changed endpoint up to the kernel, of
// Services at the limits of an API server.
func BenchmarkLargeService(b *testing.B) {
	run := func(name string, first model.ServiceState) {
		second := otherHost(first)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			change := newLargeLab(b, first)
			changes := 0
			for i := 0; b.Loop(); i++ {
				s := change([]model.ServiceState{second, first}[i%2])
				if s.Whole {
					b.Fatal("everything was compared")
				}
				changes = len(s.Plan.Changes)
			}
			b.ReportMetric(float64(changes), "changes/op")
		})
	}
	for _, n := range []int{1000, 5000, 15_000, 40_000} {
		run(fmt.Sprintf("ports-%d", n), largeState(n, 1, 1))
	}
	for _, n := range []int{1, 10, 100} {
		run(fmt.Sprintf("slices-%d", n), largeState(2, n, 1000))
	}
}
