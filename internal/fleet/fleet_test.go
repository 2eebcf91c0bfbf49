package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// agent answers with a status.
func agent(node string, s api.Status) fleetlab.Agent {
	s.From, s.Node = api.FromDaemon, node
	return fleetlab.Agent{Node: node, Pod: "nftproxy-" + node, Answers: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.StatusPath {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = s.WriteJSON(w)
	})}
}

func open(t testing.TB, s *fleetlab.Server, way string, timeout time.Duration) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Open(fleet.Options{
		Cluster: kubectl.Access{Kubeconfig: s.Kubeconfig(t), UserAgent: "test"}, Pods: fleet.DefaultPods, Port: fleetlab.Port,
		Way: way, Parallel: fleet.DefaultParallel, Timeout: timeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func status(ctx context.Context, c *api.Client) (*api.Status, error) {
	return c.Status(ctx, &api.Filter{Rows: 1})
}

// members returns all nodes and agents.
func members(t testing.TB, f *fleet.Fleet) ([]fleet.Node, []fleet.Agent) {
	t.Helper()
	nodes, err := f.Nodes(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	agents, err := f.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nodes, agents
}

// judged asks all agents and judges their answers.
func judged(t testing.TB, f *fleet.Fleet) *fleet.Report {
	t.Helper()
	nodes, agents := members(t, f)
	return fleet.Judge(time.Now(), nodes, fleet.Ask(t.Context(), f, agents, func(int) {}, status), nil, true)
}

var healthy = api.Status{Healthy: true, Daemon: api.Daemon{Version: "1"}}

// TestVerdicts: 18.1, 18.2. Each node gets the verdict that its agent deserves, the worst first, over
// both ways.
func TestVerdicts(t *testing.T) {
	sick := healthy
	sick.Healthy, sick.LastSync = false, &api.Sync{Error: "no buffer space"}
	late := healthy
	late.PendingSince = time.Now().Add(-time.Minute)
	cut := healthy
	cut.Problems = []api.Problem{{Object: model.Object{Kind: "Machine"}, Reason: model.ForwardingOff, Message: "net.ipv4.ip_forward is 0"}, {Object: model.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Reason: model.LacksEndpoints, Message: "none"}}
	gone := agent("g", healthy)
	gone.NoNode = true
	nothing := agent("n", healthy)
	nothing.Answers = nil
	s := fleetlab.New(t, []fleetlab.Agent{
		agent("good", healthy), agent("cut", cut), agent("late", late), agent("sick", sick), gone, nothing,
		{Node: "stopped", Pod: "nftproxy-stopped", Silent: true}, {Node: "empty"}, {Node: "windows", Labels: map[string]string{"kubernetes.io/os": "windows"}},
	})
	want := []string{"n: no answer", "stopped: no answer", "empty: no agent", "sick: unhealthy", "late: behind", "g: no node", "cut: problems", "good: ok"}
	reasons := []string{"connection refused", "s: is the process stopped?", "no pod", "no buffer space", "changes wait for 1m", "no Node object", "net.ipv4.ip_forward is 0", ""}
	for _, way := range fleet.Ways {
		t.Run(way, func(t *testing.T) {
			r := judged(t, open(t, s, way, 2*time.Second))
			if slices.ContainsFunc(r.Nodes, func(n fleet.NodeReport) bool { return n.Name != "stopped" && strings.Contains(n.Reason, reasons[1]) }) {
				r = judged(t, open(t, s, way, 30*time.Second)) // the machine is too busy for two seconds
			}
			if len(r.Nodes) != len(want) {
				t.Fatalf("%d nodes: %+v", len(r.Nodes), r.Nodes)
			}
			for i := range r.Nodes {
				n := &r.Nodes[i]
				if got := n.Name + ": " + string(n.Verdict); got != want[i] || !strings.Contains(n.Reason, reasons[i]) {
					t.Errorf("%s (%s), want %s (%s)", got, n.Reason, want[i], reasons[i])
				}
			}
			if r.Wrong() != 6 || len(r.Services) != 1 || r.Services[0].Node != "cut" {
				t.Errorf("%d wrong, problems of Services %+v", r.Wrong(), r.Services)
			}
		})
	}
}

// TestAnswerInTime: 18.1. One stopped agent does not delay the answers of the others.
func TestAnswerInTime(t *testing.T) {
	const timeout = 3 * time.Second
	agents := []fleetlab.Agent{{Node: "stopped", Pod: "nftproxy-stopped", Silent: true}}
	for i := range 40 {
		agents = append(agents, agent(fmt.Sprint("n", i), healthy))
	}
	f := open(t, fleetlab.New(t, agents), fleet.PortForward, timeout)
	all, err := f.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, a := range fleet.Ask(t.Context(), f, all, func(int) {}, status) {
		switch silent := errors.Is(a.Err, fleet.ErrSilent); {
		case a.Agent.Node == "stopped" && (!silent || time.Since(start) < timeout):
			t.Errorf("%s after %s: %v", a.Agent.Node, time.Since(start), a.Err)
		case a.Agent.Node != "stopped" && a.Err != nil && !silent:
			t.Errorf("%s: %v", a.Agent.Node, a.Err)
		}
	}
}

// slice is an EndpointSlice that changed at a time.
func slice(name, version string, at time.Time) any {
	return map[string]any{"metadata": map[string]any{"namespace": "shop", "name": name, "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z",
		"managedFields": []any{map[string]any{"time": at.Format(time.RFC3339)}}}}
}

// TestBehind: 18.8. A node is behind that has not seen the object that changed last, for as long as the
// object is changed; resourceVersions are numbers, and nodes that do not say theirs are not behind.
func TestBehind(t *testing.T) {
	seen := func(version string) api.Status {
		s := healthy
		s.Seen = map[string]string{"services": "5", "endpointslices": version}
		return s
	}
	s := fleetlab.New(t, []fleetlab.Agent{agent("at", seen("1002")), agent("before", seen("999")), agent("past", seen("20000")), agent("silent", healthy)})
	now := time.Now()
	s.Slices = func() []any {
		return []any{slice("old", "998", now.Add(-time.Hour)), slice("new", "1002", now.Add(-30*time.Second)), slice("other", "1000", now)}
	}
	f := open(t, s, fleet.PortForward, 20*time.Second)
	newest, err := f.Newest(t.Context())
	if err != nil || len(newest) != 1 || newest["endpointslices"].Object != "shop/new" {
		t.Fatalf("%+v, %v", newest, err)
	}
	agents, err := f.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := f.Nodes(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := fleet.Judge(now, nodes, fleet.Ask(t.Context(), f, agents, func(int) {}, status), newest, true)
	if r.Verdicts[fleet.Behind] != 1 || r.Verdicts[fleet.Good] != 3 || r.Nodes[0].Name != "before" || int(r.Nodes[0].BehindSeconds) != 30 ||
		!strings.Contains(r.Nodes[0].Reason, "endpointslices up to resourceVersion 999, and shop/new has 1002") {
		t.Errorf("%+v", r.Nodes)
	}
}

// TestThousandNodes: 18.9. A thousand nodes are asked with bounded memory, while the objects change, and none
// is judged to be anything else than what it is. Agents and API server are in this process, and so is their memory.
func TestThousandNodes(t *testing.T) {
	const n, stopped = 1000, 17
	var version atomic.Int64
	version.Store(1000)
	agents := make([]fleetlab.Agent, n)
	for i := range agents {
		node := fmt.Sprintf("n%04d", i)
		agents[i] = agent(node, healthy)
		agents[i].Answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := healthy
			now := fmt.Sprint(version.Add(1)) // the objects change all the time, and a node follows
			s.Seen = map[string]string{"services": now, "endpointslices": now}
			w.Header().Set("Content-Type", "application/json")
			_ = s.WriteJSON(w)
		})
	}
	agents[stopped].Silent = true
	s := fleetlab.New(t, agents)
	s.Slices = func() []any { return []any{slice("web", fmt.Sprint(version.Load()), time.Now())} }
	f := open(t, s, fleet.PortForward, 40*time.Second) // a busy machine answers for a thousand
	var before runtime.MemStats                        // with what other tests have taken
	runtime.ReadMemStats(&before)
	start := time.Now()
	nodes, err := f.Nodes(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := f.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	most, answered := 0, time.Duration(0)
	done := func(done int) {
		if most = max(most, done); done == n-1 {
			answered = time.Since(start)
		}
	}
	r := fleet.Judge(time.Now(), nodes, fleet.Ask(t.Context(), f, all, done, status), newest, true)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Fprintf(t.Output(), "%d nodes but the stopped one in %v, %d MiB of the process, changes %d\n", n, answered, m.Sys>>20, version.Load()-1000)
	if len(r.Nodes) != n || most != n || r.Nodes[0].Verdict != fleet.NoAnswer || r.Nodes[0].Name != "n0017" || r.Verdicts[fleet.Good] != n-1 {
		t.Errorf("%d nodes, %d answers, verdicts %v, first %+v", len(r.Nodes), most, r.Verdicts, r.Nodes[0])
	}
	if took := m.Sys - before.Sys; took > 400<<20 {
		t.Errorf("%d MiB for both sides", took>>20)
	}
}

// TestForbidden: 18.4. The error names the permission that is missing.
func TestForbidden(t *testing.T) {
	s := fleetlab.New(t, []fleetlab.Agent{agent("n", healthy)})
	s.Forbidden = []string{"portforward"}
	f := open(t, s, fleet.PortForward, 5*time.Second)
	r := judged(t, f)
	if len(r.Nodes) != 1 || r.Nodes[0].Verdict != fleet.NoAnswer || !strings.Contains(r.Nodes[0].Reason, "portforward is forbidden") {
		t.Errorf("%+v", r.Nodes)
	}
	s.Forbidden = []string{"/nodes"}
	if _, err := f.Nodes(t.Context(), "", nil); err == nil || !strings.Contains(err.Error(), "list nodes: /nodes is forbidden") {
		t.Errorf("without the permission: %v", err)
	}
}
