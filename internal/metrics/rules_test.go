package metrics_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
)

// TestElements counts what the sets hold after the last successful sync. What
// is gone has no series; frontends with affinity are in one map, whatever their timeout.
func TestElements(t *testing.T) {
	elements := func(set string) string { return `nftproxy_set_elements{ip_family="IPv4",set="` + set + `"}` }
	short, long := service("short", "10.96.0.1"), service("long", "10.96.0.2")
	short.AffinityTimeout, long.AffinityTimeout = time.Minute, time.Hour
	s := newSet()
	full := syncOf(snapshot(short, long, service("web", "10.96.0.3")), agent.Start, time.Second)
	s.Observe(full)
	series := scrape(t, s, "/metrics")
	expect(t, series, map[string]float64{
		elements("services"): 3, elements("endpoints"): 3, elements("cluster-ips"): 3, elements("firewalled"): 0,
		elements("affinity-timeouts"): 2, elements("binders"): 2, elements("affinity"): absent, elements("affinity-arrivals"): absent,
		`nftproxy_set_elements{ip_family="IPv6",set="services"}`: absent,
	})

	empty := syncOf(snapshot(), agent.Retry, time.Second)
	s.Observe(failed(empty, errors.New("no memory")))
	expect(t, scrape(t, s, "/metrics"), map[string]float64{elements("services"): 3})
	s.Observe(empty)
	for name := range scrape(t, s, "/metrics") {
		if strings.HasPrefix(name, "nftproxy_set_elements") {
			t.Errorf("%s is there without any rules", name)
		}
	}
}

func TestNotices(t *testing.T) {
	claimed := netip.MustParseAddr("192.0.2.1")
	one, two := service("one", "10.96.0.1"), service("two", "10.96.0.2")
	one.External = &model.External{ExternalIPs: []netip.Addr{claimed}}
	two.External = one.External
	s := newSet()
	// It is known before the rules are there, and even if they never are.
	s.Observe(failed(syncOf(snapshot(one, two), agent.Start, time.Second), errors.New("no memory")))
	const conflicts = `nftproxy_notices{reason="Conflict"}`
	expect(t, scrape(t, s, "/metrics"), map[string]float64{conflicts: 1, `nftproxy_notices{reason="NodeUnknown"}`: absent})
	s.Observe(syncOf(snapshot(one), agent.Change, time.Second))
	expect(t, scrape(t, s, "/metrics"), map[string]float64{conflicts: absent})
}

// TestInterventions count what others did by kind and process, whose names
// cannot make series without end.
func TestInterventions(t *testing.T) {
	s := newSet()
	sync := syncOf(snapshot(service("web", "10.96.0.1")), agent.Drift, time.Second)
	sync.Interventions = []kernel.Intervention{
		{By: host.Process{PID: 1, Name: "nft"}, Counts: map[string]int{"rule": 2, "element": 7}},
		{By: host.Process{PID: 2, Name: "nft"}, Counts: map[string]int{"rule": 1}},
		{Missed: true},
	}
	s.Observe(sync)
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		"nftproxy_drift_changes_total":                                   float64(len(sync.Plan.Changes)),
		`nftproxy_drift_objects_total{kind="rule",process="nft"}`:        3,
		`nftproxy_drift_objects_total{kind="element",process="nft"}`:     7,
		`nftproxy_drift_objects_total{kind="unknown",process="unknown"}`: 1,
	})
	sync.Interventions = nil
	for i := range 100 {
		sync.Interventions = append(sync.Interventions, kernel.Intervention{
			By: host.Process{Name: fmt.Sprintf("\xff%d", i)}, Counts: map[string]int{"chain": 1}})
	}
	s.Observe(sync)
	var series int
	for name := range scrape(t, s, "/metrics") {
		if strings.HasPrefix(name, `nftproxy_drift_objects_total{kind="chain"`) {
			series++
		}
	}
	if series != 20 {
		t.Errorf("%d series of hostile names, want 20", series)
	}
	expect(t, scrape(t, s, "/metrics"), map[string]float64{`nftproxy_drift_objects_total{kind="chain",process="other"}`: 81})
}

// TestDrift: what an hourly check finds to do was done by others.
func TestDrift(t *testing.T) {
	const drift = "nftproxy_drift_changes_total"
	s := newSet()
	sync := syncOf(snapshot(service("web", "10.96.0.1")), agent.Start, time.Second)
	s.Observe(sync)
	expect(t, scrape(t, s, "/metrics"), map[string]float64{drift: 0})
	check := *sync
	check.Cause = agent.Check
	s.Observe(&check)
	expect(t, scrape(t, s, "/metrics"), map[string]float64{drift: float64(len(sync.Plan.Changes))})
	if len(sync.Plan.Changes) == 0 {
		t.Error("the plan is empty")
	}
}

func TestTransactions(t *testing.T) {
	s := newSet()
	p := syncOf(snapshot(service("web", "10.96.0.1")), agent.Start, 0).Plan
	s.Committed(apply.Commit{Plan: p, Size: codec.Size{Messages: 12, Bytes: 3456}, Duration: 20 * time.Millisecond})
	for _, err := range []error{fmt.Errorf("commit: %w", unix.EBUSY), unix.ERESTART, unix.EBUSY, errors.New("no answer")} {
		s.Committed(apply.Commit{Plan: p, Err: err})
	}
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		"nftproxy_transaction_duration_seconds_sum":             0.02,
		"nftproxy_transaction_size_bytes_sum":                   3456,
		"nftproxy_transaction_messages_sum":                     12,
		"nftproxy_transaction_changes_sum":                      float64(len(p.Changes)),
		"nftproxy_transaction_changes_count":                    1,
		`nftproxy_transaction_failures_total{error="EBUSY"}`:    2,
		`nftproxy_transaction_failures_total{error="ERESTART"}`: 1,
		`nftproxy_transaction_failures_total{error="other"}`:    1,
	})
}

// affinity has maps of a certain use.
type affinity struct {
	uses []kernel.AffinityUse
	err  error
}

func (a *affinity) AffinityUse() ([]kernel.AffinityUse, error) { return a.uses, a.err }

func TestAffinity(t *testing.T) {
	from := &affinity{uses: []kernel.AffinityUse{{Family: model.IPv4, Map: "affinity", Used: 7, Size: 1000}, {Family: model.IPv6, Map: "affinity", Used: 3, Size: 1000}}}
	s := newSet()
	read := metrics.Affinity{Set: s, From: from}
	if got, err := read.AffinityUse(); err != nil || len(got) != 2 {
		t.Fatalf("passed on %v, %v", got, err)
	}
	const clients, capacity = `nftproxy_affinity_clients{ip_family="IPv4",map="affinity"}`, `nftproxy_affinity_capacity{ip_family="IPv4",map="affinity"}`
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		clients: 7, capacity: 1000, `nftproxy_affinity_clients{ip_family="IPv6",map="affinity"}`: 3,
	})
	from.uses, from.err = nil, errors.New("no permission")
	if _, err := read.AffinityUse(); !errors.Is(err, from.err) {
		t.Errorf("passed on the error %v", err)
	}
	expect(t, scrape(t, s, "/metrics"), map[string]float64{clients: 7})
	from.err = nil
	if _, err := read.AffinityUse(); err != nil {
		t.Fatal(err)
	}
	expect(t, scrape(t, s, "/metrics"), map[string]float64{clients: absent, capacity: absent})
}

// TestConnections reads at each scrape. A failure does not affect other metrics.
func TestConnections(t *testing.T) {
	web := model.PortName{Service: model.ServiceName{Namespace: "default", Name: "web"}, Port: "http", Protocol: model.TCP}
	var log strings.Builder
	s := metrics.New("v1.2.3", nil, slog.New(slog.NewTextHandler(&log, nil)))
	var problem error
	s.FollowConnections(func() (map[report.Owner]uint64, error) {
		return map[report.Owner]uint64{
			{Port: web, Family: model.IPv4, Kind: model.ClusterIP}:      5,
			{Port: web, Family: model.IPv4, Kind: model.NodePort}:       5,
			{Port: web, Family: model.IPv6, Kind: model.LoadBalancerIP}: 1,
		}, problem
	})
	series := func(frontend, family string) string {
		return `nftproxy_service_connections_total{frontend="` + frontend + `",ip_family="` + family +
			`",namespace="default",port="http",protocol="TCP",service="web"}`
	}
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		series("ClusterIP", "IPv4"): 5, series("NodePort", "IPv4"): 5, series("LoadBalancerIP", "IPv6"): 1,
		series("ExternalIP", "IPv4"): absent,
	})
	problem = errors.New("no permission")
	expect(t, scrape(t, s, "/metrics"), map[string]float64{series("ClusterIP", "IPv4"): absent, "nftproxy_drift_changes_total": 0})
	if !strings.Contains(log.String(), "metrics are incomplete") || !strings.Contains(log.String(), "no permission") {
		t.Errorf("the log says nothing of it: %s", log.String())
	}
}
