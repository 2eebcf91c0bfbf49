package metrics_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// everything has seen something of each sort. There is one in the process: the
// requests to the API server have one receiver only.
var everything = sync.OnceValue(func() *metrics.Set {
	s := newSet()
	s.FollowAgent(func() agent.State { return agent.State{LastRequest: started} })
	s.FollowCluster(func() cluster.Counts {
		return cluster.Counts{Services: 7, Slices: 9, PendingServices: 2, PendingSlices: 3, Rejected: 1}
	})
	s.FollowSource(func() source.State { return source.State{LastSuccess: started, Failures: 5, Warned: 30} })
	s.FollowConnections(func() (map[report.Owner]uint64, error) {
		return map[report.Owner]uint64{{Family: model.IPv4}: 1}, nil
	})
	s.FollowEndpoints(func() ([]report.EndpointTotal, int, error) {
		return []report.EndpointTotal{{Endpoint: netip.MustParseAddrPort("10.1.1.2:8080"), Connections: 4}}, 1, nil
	})
	limits := func() (map[report.LimitOwner]uint64, error) {
		return map[report.LimitOwner]uint64{{Owner: report.Owner{Family: model.IPv4}, Limit: model.LimitRate}: 1}, nil
	}
	s.FollowLimits(limits, limits)
	s.FollowRefusals(func() (map[report.RefusalOwner]uint64, error) { return map[report.RefusalOwner]uint64{{}: 1}, nil })
	s.FollowMachine(func() (problems, warnings map[string]int) {
		return map[string]int{"forwarding": 1}, map[string]int{"service-addresses": 1}
	},
		func() (machine.Conntrack, error) { return machine.Conntrack{Count: 7, Max: 9}, nil })
	s.ExportRequests(metrics.CountRequests())
	objects := snapshot(service("web", "10.96.0.1"))
	objects.Nodes = []*model.Node{{Name: "node-2"}}
	sync := syncOf(objects, agent.Start, time.Second)
	sync.Triggers = []model.Trigger{{Family: model.IPv4, Time: started}}
	sync.Interventions = []kernel.Intervention{{By: host.Process{Name: "nft"}, Counts: map[string]int{"table": 1}}}
	s.Observe(sync)
	s.Observe(failed(syncOf(objects, agent.Change, time.Second), unix.ENOMEM))
	s.Postponed([]model.Family{model.IPv4})
	s.Committed(apply.Commit{Plan: sync.Plan})
	s.Committed(apply.Commit{Plan: sync.Plan, Err: unix.ENOMEM})
	s.Answered("/healthz", 200)
	s.Answered("/livez", 200)
	s.Cleaned(model.IPv4, 30*time.Millisecond, 4)
	_, _ = metrics.Affinity{Set: s, From: &affinity{uses: []kernel.AffinityUse{{Family: model.IPv4, Size: 1}}}}.AffinityUse()
	return s
})

// TestCluster: 11.6. Events of Services count once for each family.
func TestCluster(t *testing.T) {
	expect(t, scrape(t, everything(), "/metrics"), map[string]float64{
		"kubeproxy_sync_proxy_rules_service_changes_total":                           14,
		"kubeproxy_sync_proxy_rules_endpoint_changes_total":                          9,
		"kubeproxy_sync_proxy_rules_service_changes_pending":                         2,
		"kubeproxy_sync_proxy_rules_endpoint_changes_pending":                        3,
		"nftproxy_rejected_objects":                                                  1,
		`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"}`: float64(started.Unix()),
	})
}

// TestSource: 11.16.
func TestSource(t *testing.T) {
	expect(t, scrape(t, everything(), "/metrics"), map[string]float64{
		"nftproxy_source_usable":                         1,
		"nftproxy_source_errors_total":                   5,
		"nftproxy_source_last_success_timestamp_seconds": float64(started.Unix()),
		"nftproxy_source_warnings":                       30,
	})
	s := newSet()
	s.FollowSource(func() source.State { return source.State{Err: errors.New("broken")} })
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		"nftproxy_source_usable":                         0,
		"nftproxy_source_last_success_timestamp_seconds": 0,
	})
}

// TestCleanedConnections: 9.12.
func TestCleanedConnections(t *testing.T) {
	s := newSet()
	s.Cleaned(model.IPv6, 30*time.Millisecond, 4)
	s.Cleaned(model.IPv6, 20*time.Millisecond, 0)
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv6"}`:       4,
		`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"}`:       absent,
		`kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv6"}`: 2,
		`kubeproxy_conntrack_reconciler_sync_duration_seconds_sum{ip_family="IPv6"}`:   0.05,
	})
}

// request sends a request through client-go, which has to be sent twice, and
// returns the server's name.
func request(t *testing.T) (host string) {
	t.Helper()
	var busy atomic.Bool
	busy.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if busy.Swap(false) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"36"}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(server.URL, "http://")
}

// TestRequests: 11.9, what client-go does, the runtime and the process.
func TestRequests(t *testing.T) {
	s := everything()
	host := `host="` + request(t) + `"`
	series := scrape(t, s, "/metrics")
	expect(t, series, map[string]float64{
		`rest_client_requests_total{code="200",` + host + `,method="GET"}`:             1,
		`rest_client_requests_total{code="429",` + host + `,method="GET"}`:             1,
		`rest_client_request_retries_total{code="200",` + host + `,verb="GET"}`:        1,
		`rest_client_request_duration_seconds_count{` + host + `,verb="GET"}`:          1,
		`rest_client_request_duration_seconds_bucket{` + host + `,verb="GET",le="60"}`: 1,
		`rest_client_response_size_bytes_sum{` + host + `,verb="GET"}`:                 26,
	})
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "process_start_time_seconds"} {
		if series[name] <= 0 {
			t.Errorf("%s: %v (11.9)", name, series[name])
		}
	}
}

// tolerated are names that kube-proxy chose, and what the linter says of them.
// Ours are clean.
var tolerated = map[string]string{
	"kubeproxy_sync_proxy_rules_no_local_endpoints_total": `non-counter metrics should not have "_total" suffix`,
}

func TestLint(t *testing.T) {
	everything()
	request(t)
	found := make(map[string]string)
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		problems, err := promlint.New(strings.NewReader(fetch(t, everything(), path))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if !strings.HasPrefix(p.Metric, "go_") { // the Go runtime's own
				found[p.Metric] = p.Text
			}
		}
	}
	if diff := cmp.Diff(tolerated, found); diff != "" {
		t.Errorf("problems (-tolerated +found):\n%s", diff)
	}
}

// metric is a row of the table in docs/metrics.md.
type metric struct{ kind, labels string }

// TestDocumented compares docs/metrics.md with what is served: 11.10 and 11.11.
// A renamed series breaks dashboards. TestEveryMetricIsDocumented of package daemon compares the names of all.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]metric)
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = metric{kind: m[2], labels: strings.ReplaceAll(m[3], "`", "")}
	}
	everything()
	request(t)
	for name, m := range served(t) {
		if documented[name] != m {
			t.Errorf("docs/metrics.md has %+v for %s, want %+v", documented[name], name, m)
		}
	}
}

// served returns the metrics of [everything], but those of the Go runtime and
// of the process.
func served(t *testing.T) map[string]metric {
	t.Helper()
	text := fetch(t, everything(), "/metrics") + fetch(t, everything(), "/metrics/slis")
	out := make(map[string]metric)
	labels := make(map[string]map[string]bool)
	name := ""
	label := regexp.MustCompile(`([a-z_]+)="`)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			fields := strings.Fields(rest)
			name = fields[0]
			out[name], labels[name] = metric{kind: fields[1]}, make(map[string]bool)
		} else if !strings.HasPrefix(line, "#") {
			for _, m := range label.FindAllStringSubmatch(line, -1) {
				labels[name][m[1]] = true
			}
		}
	}
	for name, m := range out {
		delete(labels[name], "le")
		m.labels = strings.Join(slices.Sorted(maps.Keys(labels[name])), ", ")
		out[name] = m
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			delete(out, name)
		}
	}
	return out
}
