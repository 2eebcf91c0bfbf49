package report_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// many returns a routing with n Services in namespaces of ten. Every fifth has no
// endpoints, and every seventh has policy Local and its endpoint elsewhere.
func many(n int) *model.Routing {
	s := &model.Snapshot{Nodes: []*model.Node{{Name: "node", Addresses: []netip.Addr{addr("192.0.2.1")}}}}
	for i := range n {
		svc := service(fmt.Sprint("svc-", i), netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}))
		svc.Name.Namespace = fmt.Sprint("ns-", i/10)
		if i%7 == 1 {
			svc.ExternalPolicy, svc.Ports[0].NodePort = model.PolicyLocal, uint16(30000+i)
		}
		s.Services = append(s.Services, svc)
		if i%5 == 0 {
			continue
		}
		s.Slices = append(s.Slices, &model.EndpointSlice{Namespace: svc.Name.Namespace, Name: svc.Name.Name, Service: svc.Name.Name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{{Address: netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}), Ready: true, Serving: true, Place: model.OnNode("other")}}})
	}
	return model.Resolve(s, model.Config{NodeName: "node"})
}

// serveRouting returns a daemon with a routing and no kernel.
func serveRouting(t *testing.T, routing *model.Routing, c report.Config) (*report.Server, netip.AddrPort) {
	t.Helper()
	if c.Kernel == nil {
		c.Kernel = idleKernel{}
	}
	if c.Facts == nil {
		c.Facts = fleetlab.NoFacts{}
	}
	a, _ := c.Agent.(report.FakeAgent)
	a.Routes = func() *model.Routing { return routing }
	if a.In == nil {
		a.In = func() agent.State { return agent.State{Started: time.Unix(1000, 0)} }
	}
	c.Log, c.Agent = slog.New(slog.DiscardHandler), a
	s := report.New(c)
	s.Observe(&agent.Sync{Plan: &plan.Plan{}, Started: time.Now()})
	web := httptest.NewServer(fleetlab.Handler(s))
	t.Cleanup(web.Close)
	return s, netip.MustParseAddrPort(web.Listener.Addr().String())
}

func text(t *testing.T, r *api.Status, v show.View) string {
	t.Helper()
	var b strings.Builder
	v.Now = time.Now()
	if err := show.Status(&b, r, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func ask(t *testing.T, a netip.AddrPort, f api.Filter) *api.Status {
	t.Helper()
	r, err := api.NewClient(a).Status(t.Context(), &f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestManyServices prints few lines for many Services: how to see more is among them.
func TestManyServices(t *testing.T) {
	_, address := serveRouting(t, many(2000), report.Config{})
	r := ask(t, address, api.Filter{Rows: 30})
	if r.Services != 2000 || len(r.ServicePorts) != 0 || r.Omitted != r.Frontends {
		t.Errorf("%d Services, %d listed, %d of %d frontends omitted", r.Services, len(r.ServicePorts), r.Omitted, r.Frontends)
	}
	out := text(t, r, show.View{})
	if n := strings.Count(out, "\n"); n >= 60 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{
		"healthy, but 400 problems\n",
		"400 NoEndpoints: ", "and 397 more: nftproxy status --problems\n",
		"good to know\n  229 NoLocalEndpoints: ", "status -A lists all",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if all := ask(t, address, api.Filter{}); len(all.ServicePorts) != 2000 || all.Omitted != 0 {
		t.Errorf("without a limit %d of 2000 are listed, %d are omitted", len(all.ServicePorts), all.Omitted)
	}
	if out := text(t, r, show.View{All: true}); strings.Count(out, "Service ns-") != 629 {
		t.Errorf("with -A: %d problems", strings.Count(out, "Service ns-"))
	}
}

// TestFilter: totals and problems are those of the selected Services (11.21).
func TestFilter(t *testing.T) {
	_, address := serveRouting(t, many(100), report.Config{})
	for _, c := range []struct {
		filter                      api.Filter
		services, problems, listing int
		similar                     string
	}{
		{api.Filter{}, 100, 20, 100, ""},
		{api.Filter{Namespace: "ns-1"}, 10, 2, 10, ""},
		{api.Filter{Names: []string{"ns-1/svc-15"}}, 1, 1, 1, ""},
		{api.Filter{Names: []string{"svc-15", "svc-16"}}, 2, 1, 2, ""},
		{api.Filter{Names: []string{"ns-2/*"}}, 10, 2, 10, ""},
		{api.Filter{Names: []string{"svc-*"}, Namespace: "ns-3"}, 10, 2, 10, ""},
		{api.Filter{Problems: true}, 32, 20, 32, ""},
		{api.Filter{Problems: true, Namespace: "ns-1"}, 2, 2, 2, ""},
		{api.Filter{Names: []string{"scv-15"}}, 0, 0, 0, "svc-15"},
		{api.Filter{Names: []string{"ns-1/svc-99"}}, 0, 0, 0, "ns-1/svc-19"},
		{api.Filter{Namespace: "sn-1"}, 0, 0, 0, "ns-1"},
		{api.Filter{Namespace: "kube-system"}, 0, 0, 0, ""},
	} {
		r := ask(t, address, c.filter)
		if r.Services != c.services || len(r.Problems) != c.problems || len(r.ServicePorts) != c.listing {
			t.Errorf("%+v: %d Services, %d problems, %d listed; want %d, %d, %d", c.filter,
				r.Services, len(r.Problems), len(r.ServicePorts), c.services, c.problems, c.listing)
		}
		if c.similar == "" && len(r.DidYouMean) > 0 || c.similar != "" && (len(r.DidYouMean) == 0 || r.DidYouMean[0] != c.similar) {
			t.Errorf("%+v: did you mean %q, want %q", c.filter, r.DidYouMean, c.similar)
		}
	}
	if _, err := api.NewClient(address).Status(t.Context(), &api.Filter{Names: []string{"a["}}); err == nil || !strings.Contains(err.Error(), "not the name of a Service") {
		t.Errorf("a malformed pattern: %v", err)
	}
}

// fullKernel has affinity maps that are full.
type fullKernel struct{ idleKernel }

func (fullKernel) AffinityUse() ([]kernel.AffinityUse, error) {
	return []kernel.AffinityUse{{Family: model.IPv4, Map: "affinity", Used: 95, Size: 100}, {Family: model.IPv6, Map: "affinity", Used: 5, Size: 100}}, nil
}

// TestProblemsOfTheNode lists what is wrong apart from Services, the most urgent first.
func TestProblemsOfTheNode(t *testing.T) {
	server, address := serveRouting(t, &model.Routing{}, report.Config{
		Kernel: fullKernel{},
		Agent:  report.FakeAgent{In: func() agent.State { return agent.State{Started: time.Now(), Pending: time.Now().Add(-2 * time.Minute)} }},
		Facts:  facts{problems: []model.Notice{{Object: model.Machine(), Reason: "ForwardingOff", Message: "a remedy"}}},
	})
	changed := &agent.Sync{Cause: agent.Drift, Started: time.Now(), Plan: &plan.Plan{Changes: make([]plan.Change, 3)},
		Interventions: []kernel.Intervention{{By: host.Process{PID: 7, Name: "nft"}}}}
	server.Observe(changed)
	server.Observe(changed)
	server.Observe(&agent.Sync{Err: errors.New("no memory")})
	r := ask(t, address, api.Filter{})
	var got []string
	for _, p := range r.Problems {
		got = append(got, string(p.Reason)+": "+p.Object.String()+": "+p.Message)
	}
	want := []string{
		"SyncFailed: Rules: no memory",
		"ChangesPending: Rules: for 2m0s",
		`RulesChanged: Rules: by process 7 ("nft"), 0s ago; the repair took 3 changes; 2 times since the start; first: add table ip nftproxy`,
		"AffinityFull: Affinity map IPv4: 95 of 100 clients are remembered",
		"ForwardingOff: Machine: a remedy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if r.ProblemCounts["SyncFailed"] != 1 || len(r.ProblemCounts) != 5 {
		t.Errorf("counts %v", r.ProblemCounts)
	}
	if out := text(t, r, show.View{Colour: true}); !strings.HasPrefix(out, "\x1b[31munhealthy: 5 problems\x1b[0m\n") {
		t.Errorf("printed %q", out)
	}
	// A filter selects Services: what concerns the node stays.
	if r := ask(t, address, api.Filter{Namespace: "default"}); len(r.Problems) != 5 {
		t.Errorf("problems of a namespace: %v", r.Problems)
	}
}

// TestOldRepair: what was repaired long ago, or made no difference, is no problem.
func TestOldRepair(t *testing.T) {
	server, address := serveRouting(t, &model.Routing{}, report.Config{})
	for _, s := range []*agent.Sync{
		{Cause: agent.Drift, Started: time.Now().Add(-2 * time.Hour), Plan: &plan.Plan{Changes: make([]plan.Change, 3)}, Interventions: make([]kernel.Intervention, 1)},
		{Cause: agent.Drift, Started: time.Now(), Plan: &plan.Plan{}, Interventions: make([]kernel.Intervention, 1)},
		{Cause: agent.Change, Started: time.Now(), Plan: &plan.Plan{Changes: make([]plan.Change, 3)}},
	} {
		server.Observe(s)
	}
	if r := ask(t, address, api.Filter{}); len(r.Problems) > 0 || r.RulesChanged == nil || r.RulesChanged.Times != 1 {
		t.Errorf("problems %v, changes %+v", r.Problems, r.RulesChanged)
	}
}

// TestDescribe answers about one Service, and with similar names about others (11.22).
func TestDescribe(t *testing.T) {
	routing := many(20)
	router := model.NewRouter()
	s, _ := serveRouting(t, routing, report.Config{
		Agent: report.FakeAgent{
			Services: func() []model.ServiceName {
				return []model.ServiceName{{Namespace: "ns-1", Name: "svc-16"}, {Namespace: "ns-1", Name: "gone"}}
			},
			Views: func(name model.ServiceName) *model.View {
				if name.Name == "gone" {
					return nil
				}
				router.SetServices(map[model.ServiceName]model.ServiceState{name: {Service: service("svc-16", addr("10.96.0.16"))}})
				return router.View(name)
			},
		},
		Facts: facts{source: func() report.SourceState {
			return report.SourceState{Warnings: []string{"Service default/svc-16: odd", "Service default/svc-17: odd"}}
		}},
	})
	web := httptest.NewServer(fleetlab.Handler(s))
	defer web.Close()
	address := netip.MustParseAddrPort(web.Listener.Addr().String())
	d, err := api.NewClient(address).Describe(t.Context(), "svc-16")
	if err != nil || d.From != api.FromDaemon || len(d.Ports) != 1 || len(d.Warnings) != 1 || d.Changed == nil {
		t.Errorf("%+v, %v", d, err)
	}
	for question, want := range map[string]string{
		"svc-61": `no Service is named "svc-61": did you mean ns-1/svc-16?`,
		"gone":   `no Service is named "gone"`,
		"":       `no Service is named ""`,
	} {
		var unknown *api.UnknownError
		if _, err := api.NewClient(address).Describe(t.Context(), question); !errors.As(err, &unknown) || err.Error() != want {
			t.Errorf("%q: %v, want %s", question, err, want)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if _, err := api.NewClient(netip.MustParseAddrPort(other.Listener.Addr().String())).Describe(t.Context(), "web"); !errors.Is(err, api.ErrNoDaemon) {
		t.Errorf("another server: %v", err)
	}
}
