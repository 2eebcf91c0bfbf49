package report_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with the file of that name in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// node is a laboratory with a connection to the kernel of its node.
type node struct {
	*netlab.Lab
	kernel  *kernel.Conn
	routing *model.Routing // of the last sync
}

func newNode(t *testing.T, pods int) *node {
	t.Helper()
	lab := netlab.TestLab(t, pods)
	n := &node{Lab: lab}
	if err := lab.Node.Do(func() (err error) { n.kernel, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.kernel.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	return n
}

func service(name string, clusterIPs ...netip.Addr) *model.Service {
	return &model.Service{
		Name: model.ServiceName{Namespace: "default", Name: name}, ClusterIPs: clusterIPs,
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
}

// snapshot has a Service of every fate. The first pod is on this node, the
// others are said to be elsewhere.
func (n *node) snapshot() *model.Snapshot {
	web := service("web", addr("10.96.0.10"), addr("fd00:10:96::10"))
	web.Ports[0].NodePort, web.ExternalPolicy = 30080, model.PolicyLocal
	web.External, web.HealthCheckNodePort = &model.External{LoadBalancerIPs: []netip.Addr{addr("203.0.113.20")}}, 31000
	web.AffinityTimeout, web.Created = time.Hour, 1
	elsewhere := service("elsewhere", addr("10.96.0.11"))
	elsewhere.InternalPolicy, elsewhere.External = model.PolicyLocal, &model.External{ExternalIPs: []netip.Addr{addr("203.0.113.20")}}
	s := &model.Snapshot{
		Nodes:    []*model.Node{{Name: "node", Addresses: []netip.Addr{n.Node.IPv4, n.Node.IPv6}}},
		Services: []*model.Service{web, elsewhere, service("empty", addr("10.96.0.12"))},
	}
	for _, f := range model.Families {
		for i, name := range []string{"web", "elsewhere"} {
			slice := &model.EndpointSlice{Namespace: "default", Name: fmt.Sprint(name, f), Service: name, Family: f,
				Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}}
			for j, p := range n.Pods[i:] {
				slice.Hosts = append(slice.Hosts, model.Host{Address: p.Address(f), Ready: true, Serving: true,
					Place: model.OnNode([]string{"node", "other"}[min(i+j, 1)]), Weight: uint16(1 + j)})
			}
			s.Slices = append(s.Slices, slice)
		}
	}
	return s
}

// sync does what an agent does.
func (n *node) sync(t *testing.T, s *model.Snapshot, c model.Config) *agent.Sync {
	t.Helper()
	c.NodeName, c.ClusterCIDRs = "node", []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}
	router := model.NewRouter()
	router.Configure(c, s.Nodes, s.ServiceCIDRs)
	router.SetServices(s.Update().Services)
	n.routing = router.Routing()
	rules := render.Render(n.routing)
	applier := apply.New(n.kernel, slog.New(slog.DiscardHandler))
	p, err := applier.Apply(nft.FromNothing(rules))
	if err := errors.Join(err, applier.Sweep()); err != nil {
		t.Fatal(err)
	}
	return &agent.Sync{Cause: agent.Change, Compared: true, Router: router, Plan: p, Started: time.Now(), Duration: time.Millisecond}
}

// serve returns a server of a node and the address that it listens at.
func (n *node) serve(t *testing.T, counted bool) (*report.Server, netip.AddrPort) {
	t.Helper()
	s := report.New(report.Config{
		Facts:   fleetlab.NoFacts{},
		Version: "v1", Source: "files: services.yaml", Counted: counted, Kernel: counters.Reader{Conn: n.kernel}, Log: slog.New(slog.DiscardHandler),
		Agent: report.FakeAgent{
			In:     func() agent.State { return agent.State{Started: time.Unix(1000, 0), LastSync: time.Unix(2000, 0)} },
			Routes: func() *model.Routing { return n.routing },
		},
	})
	mux := http.NewServeMux()
	mux.Handle("GET "+api.StatusPath, fleetlab.Handler(s))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return s, netip.MustParseAddrPort(web.Listener.Addr().String())
}

func fetch(t *testing.T, a netip.AddrPort) *api.Status {
	t.Helper()
	r, err := api.NewClient(a).Status(t.Context(), &api.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dial makes connections from the client.
func (n *node) dial(t *testing.T, from *netlab.Host, to string, count int) {
	t.Helper()
	for range count {
		if _, err := from.Ask("tcp", netip.MustParseAddrPort(to), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDaemonAndKernelAgree reads the same from a daemon, which knows the
// objects, and from the tables in the kernel, after real connections.
func TestDaemonAndKernelAgree(t *testing.T) {
	n := newNode(t, 3)
	server, address := n.serve(t, true)
	s := n.snapshot()
	s.Services[1].Extras = &model.Extras{Limits: model.Limits{Connections: 1000}, Ranges: []model.PortRange{workload.PortRange(model.TCP, 100, 200, 0)}}
	server.Observe(n.sync(t, s, model.Config{Counters: true}))
	n.dial(t, n.Client, "10.96.0.10:80", 3)
	n.dial(t, n.Client, "[fd00:10:96::10]:80", 2)
	n.dial(t, n.Client, "203.0.113.20:80", 4)
	n.dial(t, n.Pods[0], "203.0.113.20:80", 1)

	daemon := fetch(t, address)
	conn, _, err := report.FromKernel(n.kernel, &api.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	// The kernel does not have the endpoints that take no connections.
	if diff := cmp.Diff(daemon.ServicePorts, conn.ServicePorts, cmpopts.IgnoreFields(api.Frontend{}, "Known")); diff != "" {
		t.Errorf("service ports (-daemon +kernel):\n%s", diff)
	}
	numbers := func(r *api.Status) string {
		return fmt.Sprint(r.Services, r.Frontends, r.Endpoints, r.Counted, r.Affinity, r.Healthy)
	}
	if got, want := numbers(conn), numbers(daemon); got != want {
		t.Errorf("the kernel says %s, the daemon %s", got, want)
	}
	var text strings.Builder
	if err := show.Status(&text, conn, show.View{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	golden(t, "kernel", text.String())
}

// TestPrintPostponed prints how long the first list is postponed (13.26).
func TestPrintPostponed(t *testing.T) {
	now := time.Unix(3000, 0)
	r := &api.Status{From: api.FromDaemon, Daemon: api.Daemon{Started: now, PostponedUntil: now.Add(4 * time.Second)}}
	var b strings.Builder
	if err := show.Status(&b, r, show.View{Now: now}); err != nil {
		t.Fatal(err)
	}
	const want = "last sync  none yet: the source is read in 4s (--start-jitter); the rules of an earlier run serve"
	if !strings.Contains(b.String(), want) {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
}

// TestPrintDaemon prints the report of a daemon.
func TestPrintDaemon(t *testing.T) {
	n := newNode(t, 2)
	server, address := n.serve(t, false)
	print := func() string {
		r := fetch(t, address)
		if r.LastSync != nil {
			r.LastSync.Started = time.Unix(2995, 0)
		}
		r.Started, r.LastSuccess = r.Started.Local(), r.LastSuccess.Local()
		var b strings.Builder
		if err := show.Status(&b, r, show.View{Now: time.Unix(3000, 0)}); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(b.String(), time.Unix(1000, 0).Format(time.DateTime), "THEN")
	}
	golden(t, "start", print())
	if fetch(t, address).Healthy {
		t.Error("healthy before the first sync")
	}

	s := n.sync(t, n.snapshot(), model.Config{})
	s.Plan = &plan.Plan{Changes: s.Plan.Changes[:1]}
	server.Observe(s)
	golden(t, "daemon", print())
	if !fetch(t, address).Healthy {
		t.Error("not healthy after a good sync")
	}

	// A failed sync leaves what was served before.
	server.Observe(&agent.Sync{Cause: agent.Retry, Err: errors.New("no memory\nstack"), Started: time.Now()})
	golden(t, "failed", print())
	if fetch(t, address).Healthy {
		t.Error("healthy after a failed sync")
	}
}

// TestServiceCounts counts real connections while verdicts change, which starts
// the kernel's counters again.
func TestServiceCounts(t *testing.T) {
	n := newNode(t, 2)
	server, address := n.serve(t, true)
	config := model.Config{Counters: true}
	web := model.PortName{Service: model.ServiceName{Namespace: "default", Name: "web"}, Port: "http", Protocol: model.TCP}
	type counted struct {
		clusterIP, clusterIPv6, loadBalancer, nodePort uint64
		kinds                                          int
	}
	check := func(want counted) {
		t.Helper()
		counts, err := server.ServiceCounts()
		if err != nil {
			t.Fatal(err)
		}
		var got counted
		for c, n := range counts {
			if c.Port != web {
				continue
			}
			got.kinds++
			switch {
			case c.Kind == model.ClusterIP && c.Family == model.IPv6:
				got.clusterIPv6 = n
			case c.Kind == model.ClusterIP:
				got.clusterIP = n
			case c.Kind == model.LoadBalancerIP:
				got.loadBalancer += n
			default:
				got.nodePort += n
			}
		}
		if got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	}
	if counts, err := server.ServiceCounts(); err != nil || len(counts) > 0 {
		t.Errorf("before the first sync: %v, %v", counts, err)
	}
	s := n.snapshot()
	server.Observe(n.sync(t, s, config))
	check(counted{clusterIP: 0, clusterIPv6: 0, loadBalancer: 0, nodePort: 0, kinds: 5})
	n.dial(t, n.Client, "10.96.0.10:80", 3)
	n.dial(t, n.Client, "[fd00:10:96::10]:80", 2)
	n.dial(t, n.Client, "203.0.113.20:80", 1)
	check(counted{clusterIP: 3, clusterIPv6: 2, loadBalancer: 1, nodePort: 0, kinds: 5})

	// One endpoint less over IPv4: its counters are new ones, that of IPv6 not.
	s.Slices[0].Hosts = s.Slices[0].Hosts[:1]
	server.Observe(n.sync(t, s, config))
	n.dial(t, n.Client, "10.96.0.10:80", 1)
	check(counted{clusterIP: 4, clusterIPv6: 2, loadBalancer: 1, nodePort: 0, kinds: 5})
	if p := fetch(t, address).ServicePorts[2]; p.Name != "web" || *p.Frontends[0].Connections != 4 || *p.Frontends[1].Connections != 2 {
		t.Errorf("connections in the report: %v %d %d", p, *p.Frontends[0].Connections, *p.Frontends[1].Connections)
	}

	// A family less takes nothing away from the other one.
	s.Services[0].ClusterIPs = s.Services[0].ClusterIPs[:1]
	server.Observe(n.sync(t, s, config))
	check(counted{clusterIP: 4, clusterIPv6: 0, loadBalancer: 1, nodePort: 0, kinds: 3})
	s.Services = s.Services[1:]
	server.Observe(n.sync(t, s, config))
	check(counted{})
}

// TestSource: a source that cannot be used makes a node unhealthy, whatever the last
// sync was, and warnings do not.
func TestSource(t *testing.T) {
	n := newNode(t, 1)
	var unusable error
	s := report.New(report.Config{
		Source: "files a.yaml", Kernel: counters.Reader{Conn: n.kernel},
		Facts: facts{source: func() report.SourceState {
			return report.SourceState{Since: time.Now().Add(-time.Minute), Warnings: []string{"b.yaml: \x1b is odd", "and 3 more"}, Err: unusable}
		}},
		Agent: report.FakeAgent{Routes: func() *model.Routing { return n.routing }}, Log: slog.New(slog.DiscardHandler),
	})
	s.Observe(n.sync(t, n.snapshot(), model.Config{}))
	answer := func() (*api.Status, string) {
		t.Helper()
		w := httptest.NewRecorder()
		fleetlab.Handler(s).ServeHTTP(w, httptest.NewRequest("GET", api.StatusPath, nil))
		r := &api.Status{}
		if err := json.Unmarshal(w.Body.Bytes(), r); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := show.Status(&text, r, show.View{Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		return r, text.String()
	}
	if r, text := answer(); !r.Healthy || r.SourceError != nil || len(r.Warnings) != 2 || !strings.Contains(text, `b.yaml: \x1b is odd`) {
		t.Errorf("with warnings: %+v\n%s", r, text)
	}
	unusable = errors.New("a.yaml: broken\na.yaml: more")
	r, text := answer()
	if e := r.SourceError; r.Healthy || e == nil || e.Message != unusable.Error() || time.Since(e.Since).Round(time.Minute) != time.Minute {
		t.Errorf("unusable: healthy %v, %+v", r.Healthy, e)
	}
	if !strings.Contains(text, "1 SourceUnusable: what was read before stays in use\n    Source: a.yaml: broken (and 1 more line)\n") ||
		!strings.HasPrefix(text, "unhealthy: ") || !strings.Contains(text, "ERROR for 1m0s: a.yaml: broken (and 1 more line)\n") {
		t.Errorf("printed:\n%s", text)
	}
	unusable = fmt.Errorf("read: %w", mistakes{"a.yaml: broken", "b.yaml: empty"}) // 12.82
	if _, text := answer(); !strings.Contains(text, "2 SourceUnusable: what was read before stays in use\n    Source: a.yaml: broken\n    Source: b.yaml: empty\n") {
		t.Errorf("with mistakes in two files:\n%s", text)
	}
}

// mistakes are an error that names several files.
type mistakes []string

func (m mistakes) Error() string   { return strings.Join(m, "\n") }
func (m mistakes) Lines() []string { return m }

// TestFetchNoDaemon distinguishes the reasons for no answer.
func TestFetchNoDaemon(t *testing.T) {
	closed := httptest.NewServer(nil)
	address := netip.MustParseAddrPort(closed.Listener.Addr().String())
	closed.Close()
	_, err := api.NewClient(address).Status(t.Context(), &api.Filter{})
	if want := "no daemon answers at " + address.String() + " (dial tcp " + address.String() + ": connect: connection refused)"; !errors.Is(err, api.ErrNoDaemon) || err.Error() != want {
		t.Errorf("no listener: %v, want %s", err, want)
	}
	for _, c := range []struct {
		name     string
		handler  http.HandlerFunc
		noDaemon bool
		want     string
	}{
		{"another program", http.NotFound, true, `another server answers "404 Not Found" to /status`},
		{"a daemon with an error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no memory", 500) }, false, "see its log"},
		{"not JSON", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, false, "read answer: invalid character"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"from": "daemon", `) }, false, "read answer: unexpected end of JSON input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			_, err := api.NewClient(netip.MustParseAddrPort(s.Listener.Addr().String())).Status(t.Context(), &api.Filter{})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, api.ErrNoDaemon) != c.noDaemon {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestFetchEverywhere asks a daemon that listens on all addresses.
func TestFetchEverywhere(t *testing.T) {
	n := newNode(t, 0)
	_, address := n.serve(t, false)
	r, err := api.NewClient(netip.AddrPortFrom(netip.IPv4Unspecified(), address.Port())).Status(t.Context(), &api.Filter{})
	if err != nil || r.Version != "v1" {
		t.Errorf("%v, %v", r, err)
	}
}

// facts are those that a test sets.
type facts struct {
	fleetlab.NoFacts
	problems []model.Notice
	source   func() report.SourceState // nil: it can be used
}

func (f facts) Problems() []model.Notice { return f.problems }

func (f facts) SourceState() (s report.SourceState) {
	if f.source != nil {
		s = f.source()
	}
	return s
}

// broken is a kernel that cannot be read.
type broken struct{ report.KernelReader }

func (broken) AffinityUse() ([]kernel.AffinityUse, error) { return nil, errors.New("no memory") }
func (broken) Unlimited() ([]counters.Limit, error)       { return nil, errors.New("no memory") }

func TestServerWithoutKernel(t *testing.T) {
	n := newNode(t, 1)
	s := report.New(report.Config{Kernel: broken{}, Facts: fleetlab.NoFacts{},
		Agent: report.FakeAgent{Routes: func() *model.Routing { return n.routing }}, Log: slog.New(slog.DiscardHandler)})
	s.Observe(n.sync(t, n.snapshot(), model.Config{}))
	w := httptest.NewRecorder()
	fleetlab.Handler(s).ServeHTTP(w, httptest.NewRequest("GET", api.StatusPath, nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no memory") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
}

func TestFromKernelWithoutTables(t *testing.T) {
	n := newNode(t, 0)
	if r, _, err := report.FromKernel(n.kernel, &api.Filter{}); r != nil || err != nil {
		t.Errorf("%v, %v", r, err)
	}
}
