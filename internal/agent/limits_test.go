package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
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
				Address: netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}), Ready: true, Serving: true, Place: model.OnNode(fmt.Sprintf("node-%d", n%1000)),
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
		Applier: apply.New(&fakeKernel{}, log), Log: log, Node: model.Config{NodeName: "node-1"},
		Observers: []func(*Sync){func(s *Sync) { last = s }},
	})
	sync := func(cause Cause, s model.ServiceState) *Sync {
		a.pending.update = &model.Update{Services: map[model.ServiceName]model.ServiceState{named(0): s}}
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
				if s.Compared {
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

// TestCostOfPorts: 13.15. What an event of a Service or an EndpointSlice costs
// grows with its ports and not with their square: a port of 32,000 costs about as
// much as one of 1,000. It counts the time of the processor, which other work on
// the machine does not add to, and the best of a few runs.
func TestCostOfPorts(t *testing.T) {
	for name, prepare := range map[string]func(ports int) (event func()){
		"Service": func(n int) func() {
			s := apiService(0, 80)
			s.Spec.Ports = nil
			for i := range n {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("port-%d", i), Protocol: "TCP", Port: int32(i + 1), NodePort: int32(i + 1)})
			}
			return func() { convert.Service(s, "") }
		},
		"EndpointSlice": func(n int) func() {
			s := apiSlice(0, 1, 1)
			s.Ports = nil
			for i := range n {
				name, port := fmt.Sprintf("port-%d", i), int32(i+1)
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
			}
			return func() { convert.EndpointSlice(s) }
		},
		"sync": func(n int) func() {
			first := largeState(n, 1, 1)
			second := otherHost(first)
			change := newLargeLab(t, first)
			return func() { change(second); change(first) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			small, large := costOf(t, prepare(1000))/1000, costOf(t, prepare(32_000))/32_000
			fmt.Fprintf(t.Output(), "%v of 1,000, %v of 32,000\n", small, large)
			if large > 4*small {
				t.Errorf("one port costs %v of 32,000, and %v of 1,000", large, small)
			}
		})
	}
}

// costOf returns the least time of the processor that f takes.
func costOf(t *testing.T, f func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	used := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			t.Fatal(err)
		}
		return time.Duration(now.Nano())
	}
	least := time.Hour
	for range 5 {
		runtime.GC()
		before := used()
		f()
		least = min(least, used()-before)
	}
	return least
}
