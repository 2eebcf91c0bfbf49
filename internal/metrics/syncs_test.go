package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestSyncs checks kube-proxy's metrics of syncs (11.5): series appear with
// their first observation, for each family that is served.
func TestSyncs(t *testing.T) {
	const names = "kubeproxy_sync_"
	s := newSet()
	for name := range scrape(t, s, "/metrics") {
		if strings.HasPrefix(name, "kubeproxy_") {
			t.Errorf("11.5: %s is there before anything happened", name)
		}
	}
	objects := snapshot(service("web", "10.96.0.1"))
	s.Observe(syncOf(objects, agent.Start, 1500*time.Millisecond))
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		names + `proxy_rules_duration_seconds_count{ip_family="IPv4"}`:                             1,
		names + `proxy_rules_duration_seconds_sum{ip_family="IPv6"}`:                               1.5,
		names + `full_proxy_rules_duration_seconds_count{ip_family="IPv6"}`:                        1,
		names + `partial_proxy_rules_duration_seconds_count{ip_family="IPv4"}`:                     absent,
		names + `proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`:                             float64(started.Unix()) + 1.5,
		names + `proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`:                             float64(started.Unix()) + 1.5,
		names + `proxy_rules_nftables_sync_failures_total{ip_family="IPv4"}`:                       absent,
		names + `proxy_rules_nftables_cleanup_failures_total{ip_family="IPv4"}`:                    absent,
		names + `proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"}`: 0,
		names + `proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="external"}`: 0,
	})

	later := syncOf(objects, agent.Change, time.Second)
	later.Started = started.Add(time.Minute)
	s.Observe(failed(later, errors.New("no memory")))
	s.Postponed([]model.Family{model.IPv6})
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		names + `proxy_rules_duration_seconds_count{ip_family="IPv4"}`:          2,
		names + `full_proxy_rules_duration_seconds_count{ip_family="IPv4"}`:     1,
		names + `partial_proxy_rules_duration_seconds_count{ip_family="IPv4"}`:  1,
		names + `proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`:          float64(started.Unix()) + 1.5,
		names + `proxy_rules_nftables_sync_failures_total{ip_family="IPv4"}`:    1,
		names + `proxy_rules_nftables_sync_failures_total{ip_family="IPv6"}`:    1,
		names + `proxy_rules_nftables_cleanup_failures_total{ip_family="IPv4"}`: absent,
		names + `proxy_rules_nftables_cleanup_failures_total{ip_family="IPv6"}`: 1,
	})

	for _, cause := range []agent.Cause{agent.Retry, agent.Check} {
		s.Observe(syncOf(objects, cause, time.Second))
	}
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		names + `full_proxy_rules_duration_seconds_count{ip_family="IPv4"}`:    3,
		names + `partial_proxy_rules_duration_seconds_count{ip_family="IPv4"}`: 1,
	})
}

// TestOneFamily: a node without IPv6 has no series for it.
func TestOneFamily(t *testing.T) {
	s := newSet(model.IPv4)
	s.FollowAgent(func() agent.State { return agent.State{LastRequest: started} })
	s.Observe(syncOf(snapshot(), agent.Start, time.Second))
	series := scrape(t, s, "/metrics")
	for name := range series {
		if strings.Contains(name, "IPv6") {
			t.Errorf("%s is there", name)
		}
	}
	expect(t, series, map[string]float64{
		`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}`: float64(started.Unix()),
		`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"}`:        1,
	})
}

// TestBuckets: kube-proxy's, so that histograms of both can be added up.
func TestBuckets(t *testing.T) {
	s := newSet(model.IPv4)
	sync := syncOf(snapshot(), agent.Start, 0)
	sync.Triggers = []model.Trigger{{Family: model.IPv4, Time: started}}
	s.Observe(sync)
	s.Cleaned(model.IPv4, 0, 0)
	buckets := make(map[string]int)
	series := scrape(t, s, "/metrics")
	for name := range series {
		if metric, rest, ok := strings.Cut(name, "_bucket{"); ok && !strings.Contains(rest, "+Inf") {
			buckets[metric]++
		}
	}
	for metric, want := range map[string]int{
		"kubeproxy_sync_proxy_rules_duration_seconds":          15,
		"kubeproxy_sync_full_proxy_rules_duration_seconds":     15,
		"kubeproxy_conntrack_reconciler_sync_duration_seconds": 15,
		"kubeproxy_network_programming_duration_seconds":       3 + 59 + 12 + 7,
	} {
		if buckets[metric] != want {
			t.Errorf("%s has %d buckets, want %d", metric, buckets[metric], want)
		}
	}
	expect(t, series, map[string]float64{
		`kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.001"}`:   1,
		`kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="16.384"}`:  1,
		`kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0"}`:    1,
		`kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0.25"}`: 1,
		`kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="59"}`:   1,
		`kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="115"}`:  1,
		`kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="300"}`:  1,
	})
}

// TestProgrammingLatency: 11.7 and P98. Each change of endpoints is one
// observation, when the sync that brings it works; otherwise it is lost.
func TestProgrammingLatency(t *testing.T) {
	ago := func(f model.Family, d time.Duration) model.Trigger {
		return model.Trigger{Family: f, Time: started.Add(-d)}
	}
	of := func(cause agent.Cause, triggers ...model.Trigger) *agent.Sync {
		s := syncOf(snapshot(service("web", "10.96.0.1")), cause, time.Second)
		s.Triggers = triggers
		return s
	}
	const v4, v6 = `{ip_family="IPv4"}`, `{ip_family="IPv6"}`
	const count, sum = "kubeproxy_network_programming_duration_seconds_count", "kubeproxy_network_programming_duration_seconds_sum"
	s := newSet()

	s.Observe(failed(of(agent.Change, ago(model.IPv4, time.Minute)), errors.New("no memory")))
	s.Observe(of(agent.Retry)) // the update was taken in by the sync that failed
	expect(t, scrape(t, s, "/metrics"), map[string]float64{count + v4: absent})

	s.Observe(of(agent.Change, ago(model.IPv4, 3*time.Second), ago(model.IPv4, time.Second), ago(model.IPv4, 2*time.Second), ago(model.IPv6, 5*time.Second)))
	want := map[string]float64{count + v4: 3, sum + v4: 4 + 2 + 3, count + v6: 1, sum + v6: 6}
	expect(t, scrape(t, s, "/metrics"), want)

	s.Observe(of(agent.Check))
	expect(t, scrape(t, s, "/metrics"), want)

	// The clock of the machine that changed the slice is an hour ahead.
	s.Observe(of(agent.Change, ago(model.IPv6, -time.Hour)))
	want[count+v6]++
	expect(t, scrape(t, s, "/metrics"), want)
}

// TestWithoutLocal: 11.8, at the last successful sync.
func TestWithoutLocal(t *testing.T) {
	internal, external, both := service("internal", "10.96.0.1"), service("external", "10.96.0.2"), service("both", "10.96.0.4")
	internal.InternalPolicy, both.InternalPolicy = model.PolicyLocal, model.PolicyLocal
	external.ExternalPolicy, both.ExternalPolicy = model.PolicyLocal, model.PolicyLocal
	other := service("other", "10.96.0.5")
	other.ExternalPolicy = model.PolicyLocal
	series := func(policy, family string) string {
		return `kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="` + family + `",traffic_policy="` + policy + `"}`
	}
	s := newSet()
	with := syncOf(snapshot(internal, external, both, other, service("web", "10.96.0.3")), agent.Start, time.Second)
	s.Observe(with)
	want := map[string]float64{
		series("internal", "IPv4"): 2, series("external", "IPv4"): 3,
		series("internal", "IPv6"): 0, series("external", "IPv6"): 0,
	}
	expect(t, scrape(t, s, "/metrics"), want)
	without := syncOf(snapshot(service("web", "10.96.0.3")), agent.Change, time.Second)
	s.Observe(failed(without, errors.New("no memory")))
	expect(t, scrape(t, s, "/metrics"), want)
	s.Observe(without)
	expect(t, scrape(t, s, "/metrics"), map[string]float64{series("internal", "IPv4"): 0, series("external", "IPv4"): 0})
}
