package check

import (
	"context"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// alertCases are series, written as in the unit tests of promtool (a start, a step
// and a number of steps), and the alerts that they bring about within 3 hours, with
// the first minute.
var alertCases = map[string]struct {
	series string
	want   map[string]int
}{
	"all is well": {`load 1m
		up{job="nftproxy", instance="n1"} 1x180
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{job="nftproxy", instance="n1", ip_family="IPv4"} 1+60x180
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{job="nftproxy", instance="n1", ip_family="IPv4"} 0+60x180
		kubeproxy_sync_proxy_rules_nftables_sync_failures_total{job="nftproxy", instance="n1", ip_family="IPv4"} 0x180
		kubeproxy_network_programming_duration_seconds_bucket{job="nftproxy", le="1"} 0+9x180
		kubeproxy_network_programming_duration_seconds_bucket{job="nftproxy", le="+Inf"} 0+9x180
		nftproxy_drift_changes_total{job="nftproxy", instance="n1"} 0x180
		nftproxy_affinity_clients{job="nftproxy", instance="n1", ip_family="IPv4", map="affinity"} 899999x180
		nftproxy_affinity_capacity{job="nftproxy", instance="n1", ip_family="IPv4", map="affinity"} 1000000x180
		nftproxy_notices{job="nftproxy", reason="Conflict"} 0x180
		nftproxy_rejected_objects{job="nftproxy"} 0x180
		nftproxy_machine_problems{job="nftproxy", instance="n1", check="forwarding"} 0x180
		nftproxy_health_check_failing_endpoints{job="nftproxy", instance="n1", namespace="shop", service="web"} 0x180
		nftproxy_sampled_connections_total{job="nftproxy", instance="n1", namespace="shop", service="web", outcome="answered"} 0+96x180
		nftproxy_sampled_connections_total{job="nftproxy", instance="n1", namespace="shop", service="web", outcome="refused"} 0+4x180
		nftproxy_refused_connections_total{job="nftproxy", instance="n1", namespace="shop", service="web", reason="denied"} 0+60x180
		nftproxy_refused_connections_total{job="nftproxy", instance="n1", namespace="shop", service="web", reason="no-endpoints"} 30x180
		nftproxy_observe_up{job="nftproxy", instance="n1"} 1x180
		nftproxy_conntrack_entries{job="nftproxy", instance="n1"} 90x180
		nftproxy_conntrack_entries_limit{job="nftproxy", instance="n1"} 100x180
		process_start_time_seconds{job="nftproxy", instance="n1"} 0x60 1x60 2x60
		nftproxy_source_usable{job="nftproxy", instance="n1"} 1x180
		rest_client_requests_total{job="nftproxy", instance="n1", code="200"} 0+9x180
		rest_client_requests_total{job="nftproxy", instance="n1", code="500"} 0+0.9x180`, nil},
	"quiet for hours": {`load 1m
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{job="nftproxy"} 20x180
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{job="nftproxy"} 10x180`, nil},
	"a change at every scrape": {`load 1m
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{job="nftproxy"} 0+60x180
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{job="nftproxy"} 1+60x180`, nil},
	"one change that no sync follows": {`load 1m
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{job="nftproxy"} 20x180
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{job="nftproxy"} 10x60 3600x120`,
		map[string]int{"NftproxyRulesStale": 61 + 3}},
	"changes that no sync follows": {`load 1m
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{job="nftproxy"} 1x180
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{job="nftproxy"} 2+60x180`,
		map[string]int{"NftproxyRulesStale": 3 + 3}},
	"never a sync": {`load 1m
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{job="nftproxy"} 1x180`,
		map[string]int{"NftproxyRulesStale": 3}},
	"gone": {`load 1m
		up{job="nftproxy", instance="n1"} 1x10`, map[string]int{"NftproxyDown": 10 + 5 + 5}},
	"never there": {`load 1m
		up{job="another", instance="n1"} 1x180`, map[string]int{"NftproxyDown": 5}},
	"down": {`load 1m
		up{job="nftproxy", instance="n1"} 1x10 0x170`, map[string]int{"NftproxyDown": 11 + 5}},
	"one failure, then success": {`load 1m
		kubeproxy_sync_proxy_rules_nftables_sync_failures_total{job="nftproxy", instance="n1"} 0x10 1x170`, nil},
	"failures": {`load 1m
		kubeproxy_sync_proxy_rules_nftables_sync_failures_total{job="nftproxy", instance="n1"} 0x10 1+1x170`,
		map[string]int{"NftproxySyncsFail": 11 + 15}},
	"slow": {`load 1m
		kubeproxy_network_programming_duration_seconds_bucket{job="nftproxy", le="10"} 0+9x180
		kubeproxy_network_programming_duration_seconds_bucket{job="nftproxy", le="20"} 0+10x180
		kubeproxy_network_programming_duration_seconds_bucket{job="nftproxy", le="+Inf"} 0+10x180`,
		map[string]int{"NftproxySlow": 1 + 15}},
	"changed by others": {`load 1m
		nftproxy_drift_changes_total{job="nftproxy", instance="n1"} 0x60 7x120`,
		map[string]int{"NftproxyRulesChangedByOthers": 61}},
	"affinity full": {`load 1m
		nftproxy_affinity_clients{job="nftproxy", instance="n1", ip_family="IPv6", map="affinity"} 90x5 91x175
		nftproxy_affinity_capacity{job="nftproxy", instance="n1", ip_family="IPv6", map="affinity"} 100x180`,
		map[string]int{"NftproxyAffinityNearlyFull": 6 + 10}},
	"a conflict": {`load 1m
		nftproxy_notices{job="nftproxy", reason="Conflict"} 2x180`,
		map[string]int{"NftproxyObjectsNotServed": 15}},
	"a Service that the kernel refuses": {`load 1m
		nftproxy_notices{job="nftproxy", instance="n1", reason="Quarantined"} 0x10 1x170`,
		map[string]int{"NftproxyServiceQuarantined": 11 + 5}},
	"an unusable object": {`load 1m
		nftproxy_rejected_objects{job="nftproxy"} 1x180`,
		map[string]int{"NftproxyObjectsNotServed": 15}},
	"no forwarding": {`load 1m
		nftproxy_machine_problems{job="nftproxy", instance="n1", check="forwarding"} 0x10 1x170`,
		map[string]int{"NftproxyMachineProblem": 11 + 10}},
	"too many connections": {`load 1m
		nftproxy_conntrack_entries{job="nftproxy", instance="n1"} 90x10 91x170
		nftproxy_conntrack_entries_limit{job="nftproxy", instance="n1"} 100x180`,
		map[string]int{"NftproxyConntrackNearlyFull": 11 + 5}},
	"an endpoint that fails its health check": {`load 1m
		nftproxy_health_check_failing_endpoints{job="nftproxy", instance="n1", namespace="shop", service="web"} 0x10 1x170`,
		map[string]int{"NftproxyHealthChecksFail": 11 + 5}},
	"an endpoint that returns": {`load 1m
		nftproxy_health_check_failing_endpoints{job="nftproxy", instance="n1", namespace="shop", service="web"} 0x10 1x4 0x165`, nil},
	"endpoints that refuse connections": {`load 1m
		nftproxy_sampled_connections_total{job="nftproxy", namespace="shop", service="web", outcome="answered"} 0+90x180
		nftproxy_sampled_connections_total{job="nftproxy", namespace="shop", service="web", outcome="refused"} 0+10x180`,
		map[string]int{"NftproxyConnectionsFail": 2 + 5}},
	"a few of a few": {`load 1m
		nftproxy_sampled_connections_total{job="nftproxy", namespace="shop", service="web", outcome="answered"} 0+1x180
		nftproxy_sampled_connections_total{job="nftproxy", namespace="shop", service="web", outcome="unanswered"} 0+1x180`, nil},
	"a Service without endpoints that clients dial": {`load 1m
		nftproxy_refused_connections_total{job="nftproxy", namespace="shop", service="web", reason="no-endpoints"} 0+1x180`,
		map[string]int{"NftproxyNoEndpoints": 1 + 10}},
	"clients that are denied": {`load 1m
		nftproxy_refused_connections_total{job="nftproxy", namespace="shop", service="web", reason="denied"} 0+6000x180`,
		map[string]int{"NftproxyClientsRefused": 1 + 15}},
	"refusals that are not read": {`load 1m
		up{job="nftproxy", instance="n1"} 1x180
		nftproxy_observe_up{job="nftproxy", instance="n1"} 1x10 0x170`,
		map[string]int{"NftproxyNotObserved": 11 + 10}},
	"restarts": {`load 1m
		process_start_time_seconds{job="nftproxy", instance="n1"} 0x10 1x10 2x10 3x10 4x136`,
		map[string]int{"NftproxyRestarts": 44}},
	"a source that cannot be used": {`load 1m
		nftproxy_source_usable{job="nftproxy", instance="n1"} 1x10 0x170`,
		map[string]int{"NftproxySourceUnusable": 11 + 5}},
	"not allowed": {`load 1m
		rest_client_requests_total{job="nftproxy", instance="n1", code="200"} 0+8x180
		rest_client_requests_total{job="nftproxy", instance="n1", code="403"} 0+1x180`,
		map[string]int{"NftproxyRefusedByTheServer": 1 + 15}},
}

// TestAlerts evaluates every alert each minute.
func TestAlerts(t *testing.T) {
	for name, c := range alertCases {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(c.series, "up{") {
				c.series += "\nup{job=\"nftproxy\", instance=\"n1\"} 1x180"
			}
			if diff := cmp.Diff(c.want, fires(t, c.series)); diff != "" {
				t.Errorf("alerts, and the first minute (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryAlertIsTested(t *testing.T) {
	tested := make(map[string]bool)
	for _, c := range alertCases {
		for name := range c.want {
			tested[name] = true
		}
	}
	for _, r := range alertingRules(t) {
		if !tested[r.Name()] {
			t.Errorf("no case makes %s fire", r.Name())
		}
	}
}

// fires returns the alerts that series bring about, with the first minute.
func fires(t *testing.T, series string) map[string]int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	defer storage.Close()
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 100_000), storage)
	var first map[string]int
	for _, rule := range alertingRules(t) {
		for minute := range 180 {
			at := time.Unix(int64(minute)*60, 0)
			if _, err := rule.Eval(context.Background(), 0, at, query, &url.URL{}, 0); err != nil {
				t.Fatalf("%s: %v", rule.Name(), err)
			}
			if slices.ContainsFunc(rule.ActiveAlerts(), func(a *rules.Alert) bool { return a.State == rules.StateFiring }) {
				if first == nil {
					first = make(map[string]int)
				}
				first[rule.Name()] = minute
				break
			}
		}
	}
	return first
}

// TestRecordingRules: shares and rates, each of its own labels.
func TestRecordingRules(t *testing.T) {
	storage := promqltest.LoadedStorage(t, `load 1m
		nftproxy_sampled_connections_total{job="nftproxy", instance="n1", namespace="shop", service="web", outcome="answered"} 0+45x30
		nftproxy_sampled_connections_total{job="nftproxy", instance="n2", namespace="shop", service="web", outcome="answered"} 0+45x30
		nftproxy_sampled_connections_total{job="nftproxy", instance="n2", namespace="shop", service="web", outcome="unanswered"} 0+10x30
		nftproxy_sampled_connections_total{job="nftproxy", instance="n2", namespace="shop", service="idle", outcome="answered"} 7x30
		nftproxy_refused_connections_total{job="nftproxy", instance="n1", namespace="shop", service="web", reason="denied"} 0+60x30
		nftproxy_refused_connections_total{job="nftproxy", instance="n2", namespace="shop", service="api", reason="denied"} 0+120x30
		nftproxy_refused_connections_total{job="nftproxy", instance="n2", namespace="", service="", reason="unused-address"} 0+30x30`)
	defer storage.Close()
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 100_000), storage)
	got := make(map[string]float64)
	for _, group := range groups(t) {
		for _, rule := range group.Rules() {
			if _, ok := rule.(*rules.RecordingRule); !ok {
				continue
			}
			series, err := rule.Eval(context.Background(), 0, time.Unix(20*60, 0), query, &url.URL{}, 0)
			if err != nil {
				t.Fatalf("%s: %v", rule.Name(), err)
			}
			for _, s := range series {
				got[s.Metric.String()] = math.Round(s.F*1000) / 1000
			}
		}
	}
	want := map[string]float64{
		`{__name__="namespace_service:nftproxy_sampled_connections:answered_ratio5m", job="nftproxy", namespace="shop", service="web"}`: 0.9,
		`{__name__="reason:nftproxy_refused_connections:rate5m", job="nftproxy", reason="denied"}`:                                      3,
		`{__name__="reason:nftproxy_refused_connections:rate5m", job="nftproxy", reason="unused-address"}`:                              0.5,
		`{__name__="namespace_service:nftproxy_refused_connections:rate5m", job="nftproxy", namespace="shop", service="web"}`:           1,
		`{__name__="namespace_service:nftproxy_refused_connections:rate5m", job="nftproxy", namespace="shop", service="api"}`:           2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func alertingRules(t *testing.T) []*rules.AlertingRule {
	t.Helper()
	var out []*rules.AlertingRule
	for _, g := range groups(t) {
		out = append(out, g.AlertingRules()...)
	}
	return out
}

func groups(t *testing.T) map[string]*rules.Group {
	t.Helper()
	manager := rules.NewManager(&rules.ManagerOptions{Parser: parser.NewParser(parser.Options{})})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, "../prometheus/alerts.yaml")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return groups
}
