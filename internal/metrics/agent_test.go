package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestAgent follows an agent that works on a real kernel. Observers that come
// later, such as those of health checks and of connection tracking, see what a
// sync is counted (13.21).
func TestAgent(t *testing.T) {
	var conn *kernel.Conn
	if err := netlab.TestNamespace(t).Do(func() (err error) { conn, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})

	s := newSet()
	applier := apply.New(conn, slog.New(slog.DiscardHandler))
	applier.Observer = measured{set: s}
	sticky := service("web", "10.96.0.1")
	sticky.AffinityTimeout = time.Hour
	begin := time.Now()
	seen := make(chan map[string]float64, 1)
	use := metrics.Affinity{Set: s, From: conn}
	all := snapshot(sticky).Update()
	all.Triggers = []model.Trigger{{Family: model.IPv4, Time: begin}}
	a := agent.New(agent.Config{
		Source:   constant{all},
		Node:     model.Config{NodeName: "node-1", AffinityCapacity: 1000},
		Applier:  applier,
		Affinity: use,
		Observers: []func(*agent.Sync){s.Observe, func(*agent.Sync) {
			if _, err := use.AffinityUse(); err != nil {
				t.Error(err)
			}
			seen <- scrape(t, s, "/metrics")
		}},
		Log: slog.New(slog.DiscardHandler),
	})
	s.FollowAgent(a.State)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	series := <-seen
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	expect(t, series, map[string]float64{
		`kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"}`: 1,
		`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}`:   1,
		`nftproxy_transaction_duration_seconds_count`:                              1,
		`nftproxy_set_elements{ip_family="IPv4",set="affinity-timeouts"}`:          1,
		`nftproxy_affinity_clients{ip_family="IPv4",map="affinity"}`:               0,
		`nftproxy_affinity_capacity{ip_family="IPv4",map="affinity"}`:              1000,
	})
	low, high := float64(begin.Unix()), float64(time.Now().Unix())+1
	for _, name := range []string{
		`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`,
		`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}`,
	} {
		if v := series[name]; v < low || v > high {
			t.Errorf("%s is %v, not between %v and %v", name, v, low, high)
		}
	}
	if series["nftproxy_transaction_size_bytes_sum"] == 0 || series["nftproxy_transaction_messages_sum"] == 0 {
		t.Error("a transaction of no size")
	}
}

// BenchmarkObserve is what a sync pays for being observed.
func BenchmarkObserve(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var services []*model.Service
			for i := range n {
				services = append(services, service(fmt.Sprintf("service-%d", i), netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String()))
			}
			s := metrics.New("v1.2.3", nil, slog.New(slog.DiscardHandler))
			sync := syncOf(snapshot(services...), agent.Change, time.Second)
			sync.Triggers = []model.Trigger{{Family: model.IPv4, Time: started}}
			b.ReportAllocs()
			for b.Loop() {
				s.Observe(sync)
			}
		})
	}
}

// BenchmarkScrape is what a scrape costs.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("%d-service-ports", n), func(b *testing.B) {
			s := newSet()
			s.Observe(syncOf(snapshot(service("web", "10.96.0.1")), agent.Start, time.Second))
			counts := make(map[report.Owner]uint64)
			for i := range n {
				port := model.PortName{Service: model.ServiceName{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}, Protocol: model.TCP}
				counts[report.Owner{Port: port, Family: model.IPv4}] = uint64(i)
			}
			s.FollowConnections(func() (map[report.Owner]uint64, error) { return counts, nil })
			b.ReportAllocs()
			for b.Loop() {
				fetch(b, s, "/metrics")
			}
		})
	}
}

// measured counts what an applier commits.
type measured struct {
	apply.Unobserved
	set *metrics.Set
}

func (m measured) Committed(c apply.Commit)          { m.set.Committed(c) }
func (m measured) Postponed(families []model.Family) { m.set.Postponed(families) }

// constant is a source that does not change.
type constant struct{ all *model.Update }

func (constant) Await(context.Context) error    { return nil }
func (c constant) Load() (*model.Update, error) { return c.all, nil }
