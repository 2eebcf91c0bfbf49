package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

func follower(node string, answers http.Handler) fleetlab.Agent {
	return fleetlab.Agent{Node: node, Pod: "nftproxy-" + node, Answers: answers}
}

// converge measures the nodes of a cluster.
func converge(t *testing.T, ctx context.Context, f *fleet.Fleet, o fleet.ConvergeOptions) (*fleet.Convergence, error) {
	t.Helper()
	nodes, agents := members(t, f)
	return f.Converge(ctx, nodes, agents, o, func(int, int) {})
}

// TestConverge: 18.11, 18.12. Two nodes whose kernels have changes at known times are measured as
// exactly as the report says, over both ways, and nothing remains.
func TestConverge(t *testing.T) {
	const fast, slow = 200 * time.Millisecond, 700 * time.Millisecond
	for _, way := range fleet.Ways {
		t.Run(way, func(t *testing.T) {
			store := &fleetlab.Store{Ending: 2}
			s := fleetlab.New(t, []fleetlab.Agent{follower("fast", store.Follows(fast, nil, nil, nil)), follower("slow", store.Follows(slow, nil, nil, nil))})
			s.Others = store
			r, err := converge(t, t.Context(), open(t, s, way, 20*time.Second), fleet.ConvergeOptions{Rounds: 2, Wait: time.Minute})
			if err != nil || r.Rounds != 2 || !r.Complete() || r.Times.Count != 4 || r.Nodes[0].Name != "slow" || r.Times.Max != r.Nodes[0].Max {
				t.Fatalf("%v: %+v", err, r)
			}
			for i, took := range r.Nodes[0].Seconds {
				other, excess := r.Nodes[1].Seconds[i], max(r.Nodes[0].Excess, r.Nodes[1].Excess)
				if off := took - other - (slow - fast).Seconds(); other > 0 && math.Abs(off) > excess { // 0: the answer of the API server was late
					t.Errorf("round %d: %gs and %gs, which is wrong by %gs, and not by %gs at most", i+1, took, other, off, excess)
				}
				if took-excess > slow.Seconds() || excess <= 0 {
					t.Errorf("round %d: %gs is at least %gs, and was %v", i+1, took, took-excess, slow)
				}
			}
			if left := store.Paths(); len(left) > 0 || r.Remains != "" {
				t.Errorf("objects remain: %q, %q", left, r.Remains)
			}
		})
	}
}

// TestConvergeFaults: 18.12, 18.13. Each node that cannot be measured is named with the reason, and does not keep the
// others from being measured.
func TestConvergeFaults(t *testing.T) {
	t.Parallel() // it waits
	store := &fleetlab.Store{}
	never := 24 * time.Hour
	basis := func(name string, cluster bool) *api.Basis {
		return &api.Basis{Version: api.BasisVersion, Cluster: cluster, Settings: map[string]string{"service-proxy-name": name}}
	}
	var round atomic.Int64
	s := fleetlab.New(t, []fleetlab.Agent{
		follower("good", store.Follows(0, nil, nil, nil)),
		follower("older", store.Follows(0, func(d *api.Description) { d.Changed.AgeSeconds, d.Changed.OnlyEndpoint = 0, "" }, nil, nil)),
		follower("behind", store.Follows(never, nil, nil, nil)),
		follower("sick", store.Follows(never, nil, nil, &api.Status{Rules: api.Rules{LastSync: &api.Sync{Error: "no buffer space"}}})),
		follower("files", store.Follows(never, nil, basis("", false), nil)),
		follower("named", store.Follows(never, nil, basis("blue", true), nil)),
		follower("fails", store.Follows(0, func(d *api.Description) {
			if round.Load() == 1 {
				d.Unsynced = "the last sync failed"
			}
		}, nil, nil)),
		follower("again", store.Follows(0, func(d *api.Description) {
			if round.Load() == 2 {
				d.Changed = &api.LastChange{What: "not since this nftproxy started, 1s ago"}
			}
		}, nil, nil)),
		{Node: "stopped", Pod: "nftproxy-stopped", Silent: true}, {Node: "closed", Pod: "nftproxy-closed"}, {Node: "empty"},
		{Node: "other", Labels: map[string]string{"kubernetes.io/os": "windows"}},
	})
	s.Others = store
	f := open(t, s, fleet.PortForward, 5*time.Second)
	nodes, all := members(t, f)
	r, err := f.Converge(t.Context(), nodes, all, fleet.ConvergeOptions{Rounds: 3, Wait: 15 * time.Second}, func(n, _ int) { round.Store(int64(n)) })
	if err != nil || r.Rounds != 3 || r.Complete() || !slices.Equal(r.Uncovered, []string{"other"}) {
		t.Fatalf("%v: %+v", err, r)
	}
	want := map[string]struct {
		rounds int
		reason string
	}{
		"good": {3, ""}, "older": {0, "its nftproxy is older than this command"}, "behind": {0, "it has not applied the change within 15s"}, "sick": {0, "unhealthy: no buffer space"},
		"files": {0, "it reads files, and not the API server"}, "named": {0, "--service-proxy-name=blue"}, "fails": {0, "round 1: the last sync failed"},
		"again": {2, "round 2: it has the change, but does not know since when"}, "stopped": {0, "no answer within 15s: is the process stopped?"},
		"closed": {0, "connection refused"}, "empty": {0, "no pod of nftproxy is on the node"},
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if w := want[n.Name]; len(n.Seconds) != w.rounds || !strings.Contains(n.Reason, w.reason) || (n.Reason == "") != (w.reason == "") {
			t.Errorf("%s: %d rounds, %q; want %d, %q", n.Name, len(n.Seconds), n.Reason, w.rounds, w.reason)
		}
		delete(want, n.Name)
	}
	if len(want) > 0 || len(store.Paths()) > 0 {
		t.Errorf("nodes are missing: %v; objects remain: %q", want, store.Paths())
	}
}

// TestConvergeThousandNodes: 18.12. Of a thousand nodes, the slowest ones come first, and the quantiles are
// the ones of the nodes.
func TestConvergeThousandNodes(t *testing.T) {
	const n, slowest, delayed = 1000, 123, 3 * time.Second
	store := &fleetlab.Store{}
	agents := make([]fleetlab.Agent, n)
	for i := range agents {
		delay := time.Duration(i) * time.Millisecond / 10
		if i == slowest {
			delay = delayed
		}
		agents[i] = follower(fmt.Sprintf("n%04d", i), store.Follows(delay, nil, nil, nil))
	}
	s := fleetlab.New(t, agents)
	s.Others = store
	r, err := converge(t, t.Context(), open(t, s, fleet.Proxy, 20*time.Second), fleet.ConvergeOptions{Rounds: 1, Wait: 2 * time.Minute})
	if err != nil || len(r.Nodes) != n || !r.Complete() {
		t.Fatalf("%v: %d nodes, %+v", err, len(r.Nodes), r.Times)
	}
	// A busy machine may make any node slow. The slowest ones are first.
	ranked := func(percent int) float64 { return r.Nodes[n-n*percent/100].Max }
	if want := (fleet.Distribution{Count: n, P50: ranked(50), P90: ranked(90), P99: ranked(99), Max: r.Nodes[0].Max}); r.Times != want {
		t.Errorf("quantiles %+v, want %+v", r.Times, want)
	}
	for i, node := range r.Nodes {
		if i > 0 && node.Max > r.Nodes[i-1].Max {
			t.Errorf("%s with %.3f s is behind %s with %.3f s", node.Name, node.Max, r.Nodes[i-1].Name, r.Nodes[i-1].Max)
		}
		if node.Name == fmt.Sprintf("n%04d", slowest) && node.Max+r.Excess.Max < delayed.Seconds() {
			t.Errorf("%s, which has the change after %s: %.3f s", node.Name, delayed, node.Max)
		}
	}
	sum := 0
	for _, b := range r.Histogram {
		sum += b.Count
	}
	if last := r.Histogram[len(r.Histogram)-1]; sum != n || last.Count == 0 || last.UpTo < r.Times.Max {
		t.Errorf("%d in the histogram: %+v", sum, r.Histogram)
	}
	fmt.Fprintf(t.Output(), "%d nodes in %.1fs: %+v, too long by %+v\n", n, r.Seconds, r.Times, r.Excess)
}

// TestConvergeInterrupted: 18.14. Whenever a measurement ends early, all of its objects are removed, and the
// rounds before are in the report.
func TestConvergeInterrupted(t *testing.T) {
	for _, c := range []struct {
		method, kind string
		after        int
		rounds       int
	}{{http.MethodPost, "namespaces", 1, 0}, {http.MethodPost, "services", 1, 0}, {http.MethodPost, "endpointslices", 1, 0}, {http.MethodPatch, "probe", 1, 0}, {http.MethodPatch, "probe", 3, 2}} {
		t.Run(fmt.Sprint(c.method, " ", c.kind, " ", c.after), func(t *testing.T) {
			store := &fleetlab.Store{}
			s := fleetlab.New(t, []fleetlab.Agent{follower("n", store.Follows(0, nil, nil, nil))})
			s.Others = store
			ctx, cancel := context.WithCancel(t.Context())
			times := 0
			store.Wrote = func(method, path string) {
				if method == c.method && strings.HasSuffix(path, c.kind) {
					if times++; times == c.after {
						cancel()
					}
				}
			}
			r, err := converge(t, ctx, open(t, s, fleet.PortForward, 20*time.Second), fleet.ConvergeOptions{Rounds: 9, Wait: time.Minute})
			if !errors.Is(err, context.Canceled) || errors.Is(err, kubectl.ErrNotRemoved) || r.Rounds != c.rounds || times != c.after {
				t.Errorf("%v after %d rounds, %d writes", err, r.Rounds, times)
			}
			if left := store.Paths(); len(left) > 0 {
				t.Errorf("objects remain: %q", left)
			}
		})
	}
}

// TestConvergeNobodyLeft: 18.13. When no node is left to be measured, nothing is changed for more rounds.
func TestConvergeNobodyLeft(t *testing.T) {
	t.Parallel() // it waits
	store := &fleetlab.Store{}
	var patches atomic.Int64
	store.Wrote = func(method, _ string) {
		if method == http.MethodPatch {
			patches.Add(1)
		}
	}
	s := fleetlab.New(t, []fleetlab.Agent{follower("behind", store.Follows(24*time.Hour, nil, nil, nil))})
	s.Others = store
	r, err := converge(t, t.Context(), open(t, s, fleet.PortForward, 5*time.Second), fleet.ConvergeOptions{Rounds: 9, Wait: time.Second})
	if err != nil || r.Complete() || r.Rounds != 0 || patches.Load() != 0 || len(store.Paths()) > 0 {
		t.Errorf("%v: %d rounds, %d changes, %q remain", err, r.Rounds, patches.Load(), store.Paths())
	}
}

// TestConvergeLeftovers: 18.14. A run removes what a run before has left that cannot go on, and nothing else.
func TestConvergeLeftovers(t *testing.T) {
	store := &fleetlab.Store{}
	namespace := func(name, label string, created time.Time, seconds string) {
		store.Put("/api/v1/namespaces/"+name, map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{label: "true"},
			"annotations": map[string]any{"nftproxy.dev/converge-seconds": seconds}, "creationTimestamp": created.UTC().Format(time.RFC3339)}})
	}
	now := time.Now()
	namespace("nftproxy-converge-killed", fleet.LabelConverge, now.Add(-time.Hour), "300")
	namespace("nftproxy-converge-edited", fleet.LabelConverge, now.Add(-time.Hour), "soon")
	namespace("nftproxy-converge-running", fleet.LabelConverge, now.Add(-time.Minute), "300")
	namespace("shop", fleet.LabelConverge, now.Add(-time.Hour), "300")
	namespace("nftproxy-converge-mine", "team", now.Add(-time.Hour), "300")
	s := fleetlab.New(t, []fleetlab.Agent{follower("n", store.Follows(0, nil, nil, nil))})
	s.Others = store
	r, err := converge(t, t.Context(), open(t, s, fleet.PortForward, 20*time.Second), fleet.ConvergeOptions{Rounds: 1, Wait: time.Minute})
	slices.Sort(r.Removed)
	if err != nil || !slices.Equal(r.Removed, []string{"nftproxy-converge-edited", "nftproxy-converge-killed"}) ||
		len(r.Others) != 1 || r.Others[0].Namespace != "nftproxy-converge-running" || r.Others[0].Ends.Sub(now).Round(time.Minute) != 4*time.Minute {
		t.Errorf("%v: removed %q, others %+v", err, r.Removed, r.Others)
	}
	want := []string{"/api/v1/namespaces/nftproxy-converge-mine", "/api/v1/namespaces/nftproxy-converge-running", "/api/v1/namespaces/shop"}
	if left := store.Paths(); !slices.Equal(left, want) {
		t.Errorf("%q remain, want %q", left, want)
	}
}

// TestConvergeForbidden: 18.15. Missing permissions are named before anything is written; where
// the API server does not say, the first refusal ends the run, and nothing remains.
func TestConvergeForbidden(t *testing.T) {
	for name, c := range map[string]struct {
		denied, refused []string
		want            string
	}{
		"all said":       {denied: []string{"create namespaces", "patch endpointslices"}, want: "permissions are missing: create namespaces, patch endpointslices.discovery.k8s.io; the ClusterRole nftproxy-converge"},
		"not the first":  {refused: []string{"POST endpointslices"}, want: "create EndpointSlice nftproxy-converge-"},
		"nor the change": {refused: []string{"PATCH endpointslices"}, want: "endpointslices is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &fleetlab.Store{Denied: c.denied, Refused: c.refused}
			wrote := 0
			store.Wrote = func(string, string) { wrote++ }
			s := fleetlab.New(t, []fleetlab.Agent{follower("n", store.Follows(0, nil, nil, nil))})
			s.Others = store
			_, err := converge(t, t.Context(), open(t, s, fleet.PortForward, 20*time.Second), fleet.ConvergeOptions{Rounds: 1, Wait: time.Minute})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(store.Paths()) > 0 || (wrote == 0) != (c.denied != nil) {
				t.Errorf("%v; %d writes, %q remain", err, wrote, store.Paths())
			}
		})
	}
	store := &fleetlab.Store{Refused: []string{"DELETE namespaces"}}
	s := fleetlab.New(t, []fleetlab.Agent{follower("n", store.Follows(0, nil, nil, nil))})
	s.Others = store
	r, err := converge(t, t.Context(), open(t, s, fleet.PortForward, 20*time.Second), fleet.ConvergeOptions{Rounds: 1, Wait: time.Minute})
	if !errors.Is(err, kubectl.ErrNotRemoved) || !strings.HasSuffix(err.Error(), "kubectl delete namespace "+r.Namespace) || r.Rounds != 1 {
		t.Errorf("without the permission to delete: %v, %+v", err, r)
	}
}
