package report_test

import (
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// planner is a [report.Planner] of a test.
type planner func(*model.Routing) (*plan.Plan, error)

func (p planner) Compare(r *model.Routing) (*plan.Plan, error) { return p(r) }

// compares returns a client of a server that compares the kernel of a node, in a state.
func (n *node) compares(t *testing.T, state func() agent.State) *api.Client {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := report.New(report.Config{
		Facts:   fleetlab.NoFacts{},
		Version: "v1", Kernel: counters.Reader{Conn: n.kernel}, Log: log,
		Agent: report.FakeAgent{In: state, Routes: func() *model.Routing { return n.routing }},
		Planner: planner(func(r *model.Routing) (p *plan.Plan, err error) {
			err = n.Node.Do(func() (err error) { p, err = report.KernelPlanner{Log: log}.Compare(r); return err })
			return p, err
		}),
	})
	web := httptest.NewServer(fleetlab.Handler(server))
	t.Cleanup(web.Close)
	return api.NewClient(netip.MustParseAddrPort(web.Listener.Addr().String()))
}

// TestCompare: 18.5. One element that is changed by hand is named with its Service, and nothing
// else differs.
func TestCompare(t *testing.T) {
	n := newNode(t, 3)
	n.sync(t, n.snapshot(), model.Config{})
	rest := func() agent.State { return agent.State{LastSync: time.Unix(2000, 0)} }
	before, err := n.compares(t, rest).Compare(t.Context(), "")
	if err != nil || before.Count != 0 || before.Unsettled != "" || before.Compared.IsZero() {
		t.Fatalf("as applied: %+v, %v", before, err)
	}
	if got := before.Digests["default/web"]; got == "" || got != changes.Digests(render.Render(n.routing))["default/web"] {
		t.Errorf("digests %v", before.Digests)
	}
	if out, err := n.Node.Output("nft", "delete element ip nftproxy services { 10.96.0.10 . tcp . 80 }"); err != nil {
		t.Fatal(err, out)
	}
	after, err := n.compares(t, rest).Compare(t.Context(), "default/web")
	if err != nil {
		t.Fatal(err)
	}
	if after.Count != 1 || after.Differences[0].Service != "default/web" || after.Differences[0].Port != "http" ||
		!strings.HasPrefix(after.Differences[0].Change, "add element { 10.96.0.10 . tcp . 80 ") {
		t.Errorf("%+v", after)
	}
	if len(after.Elements) < 5 || !strings.Contains(strings.Join(after.Elements, "\n"), "map ip nftproxy services 10.96.0.10 . tcp . 80 : ") {
		t.Errorf("elements of the Service: %q", after.Elements)
	}
}

// TestCompareQuarantined: 13.29, 18.5. What the kernel serves of a Service whose rules it refuses does not differ, with
// all that it needs, and neither does what diff compares; damage of another Service does.
func TestCompareQuarantined(t *testing.T) {
	n := newNode(t, 3)
	n.sync(t, n.snapshot(), model.Config{})
	changed := n.snapshot()
	web := changed.Services[0]
	web.Ports[0].NodePort, web.AffinityTimeout = 30081, 0
	n.routing = model.Resolve(changed, model.Config{NodeName: "node", ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}})
	rest := func() agent.State { return agent.State{LastSync: time.Unix(2000, 0)} }
	if c, err := n.compares(t, rest).Compare(t.Context(), ""); err != nil || c.Count == 0 {
		t.Fatalf("the Service is not in quarantine: %+v, %v", c, err)
	}
	for _, object := range []model.Object{web.Name.Object(), web.Name.BalanceObject()} {
		n.routing.Notices = []model.Notice{{Object: object, Reason: model.Quarantined}}
		if c, err := n.compares(t, rest).Compare(t.Context(), ""); err != nil || c.Count != 0 {
			t.Errorf("%s is in quarantine: %+v, %v", object, c, err)
		}
	}
	if p, services, err := report.Compare(n.kernel, slog.New(slog.DiscardHandler), n.routing, report.Staying{web.Name: true}, changed); err != nil || !p.Empty() || len(services) > 0 {
		t.Errorf("diff: %v, %v, %v", p, services, err)
	}
	if out, err := n.Node.Output("nft", "delete element ip nftproxy services { 10.96.0.12 . tcp . 80 }"); err != nil {
		t.Fatal(err, out)
	}
	if c, err := n.compares(t, rest).Compare(t.Context(), ""); err != nil || c.Count != 1 || c.Differences[0].Service != "default/empty" {
		t.Errorf("another Service is damaged: %+v, %v", c, err)
	}
}

// TestCompareDuringChanges: 18.5. While changes wait, nothing is said to differ.
func TestCompareDuringChanges(t *testing.T) {
	n := newNode(t, 1)
	n.routing = model.Resolve(n.snapshot(), model.Config{NodeName: "node"}) // the kernel has no rules
	for want, state := range map[string]agent.State{
		"not synced yet":            {Pending: time.Unix(1, 0)},
		"changes are being applied": {Pending: time.Unix(3000, 0), LastSync: time.Unix(2000, 0)},
	} {
		c, err := n.compares(t, func() agent.State { return state }).Compare(t.Context(), "")
		if err != nil || c.Unsettled != want || c.Count != 0 || !c.Compared.IsZero() {
			t.Errorf("%s: %+v, %v", want, c, err)
		}
	}
	if _, err := n.compares(t, nil).Compare(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "namespace/name") {
		t.Errorf("without a namespace: %v", err)
	}
}

// TestCompareSeldom: 18.5. Many requests read the kernel once.
func TestCompareSeldom(t *testing.T) {
	reads, start := 0, time.Now()
	_, address := serveRouting(t, &model.Routing{}, report.Config{Planner: planner(func(*model.Routing) (*plan.Plan, error) {
		reads++
		return &plan.Plan{}, nil
	})})
	client := api.NewClient(address)
	for range 5 {
		if c, err := client.Compare(t.Context(), ""); err != nil || c.Compared.IsZero() {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	if took := time.Since(start); reads > 1+int(took/api.CompareEvery) {
		t.Errorf("the kernel was read %d times", reads)
	}
}
