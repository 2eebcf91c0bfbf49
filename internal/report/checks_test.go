package report_test

import (
	"encoding/json"
	"errors"
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
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// results are those of the checks of the Service default/web.
type results map[netip.Addr]model.CheckResult

func (r results) Result(name model.ServiceName, a netip.Addr) (model.CheckResult, bool) {
	result, ok := r[a]
	return result, ok && name.Name == "web"
}

func (r results) Each(f func(model.ServiceName, netip.Addr, model.CheckResult)) {
	for a, result := range r {
		f(model.ServiceName{Namespace: "default", Name: "web"}, a, result)
	}
}

// checkedService returns a router with a Service of three endpoints, of which some fail.
func checkedService(r results, all model.AllFailing) *model.Router {
	web := service("web", addr("10.96.0.10"))
	web.Check = &model.Check{Type: model.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, AllFailing: all}
	slice := &model.EndpointSlice{Namespace: "default", Name: "web-1", Service: "web", Family: model.IPv4, Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}}
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		result, ok := r[addr(a)]
		slice.Hosts = append(slice.Hosts, model.Host{Address: addr(a), Ready: true, Serving: true, Failing: ok && !result.Healthy})
	}
	s := &model.Snapshot{Services: []*model.Service{web}, Slices: []*model.EndpointSlice{slice}}
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node"}, nil, nil)
	router.SetServices(s.Update().Services)
	return router
}

// TestChecks: 3.34, what the status and the description of a Service say of its checks.
func TestChecks(t *testing.T) {
	now := time.Now()
	fails := model.CheckResult{Since: now.Add(-2 * time.Minute), Checked: now, Message: "connect: refused"}
	passes := model.CheckResult{Healthy: true, Since: now.Add(-time.Hour), Checked: now}
	shaky := model.CheckResult{Healthy: true, Since: now.Add(-time.Hour), Checked: now, Message: "no answer within 1s"}
	waits := model.CheckResult{Healthy: true}
	since := " (since " + fails.Since.Local().Format(time.TimeOnly) + ")"
	if fails.Since.Local().YearDay() != now.Local().YearDay() {
		since = " (since " + fails.Since.Local().Format(time.DateTime) + ")"
	}
	for _, c := range []struct {
		name    string
		results results
		all     model.AllFailing
		problem string // of the Service; empty: none
		checks  string // in the status
		notices []string
		column  []string // of each endpoint
		leftOut []string
		serves  string // 11.24
	}{
		{"pass", results{addr("10.0.0.1"): passes, addr("10.0.0.2"): shaky, addr("10.0.0.3"): waits}, model.UseAll, "",
			"3 endpoints of 1 Service: 2 pass, 0 fail, 1 not checked yet", nil,
			[]string{"passes", "passes (last: no answer within 1s)", "not checked yet"}, []string{"", "", ""},
			"default/web serves: 3 of 3 servers usable\n"},
		{"one fails", results{addr("10.0.0.1"): passes, addr("10.0.0.2"): passes, addr("10.0.0.3"): fails}, model.UseAll,
			"health check of 10.0.0.3 fails: connect: refused, for 2m0s",
			"3 endpoints of 1 Service: 2 pass, 1 fail", nil,
			[]string{"passes", "passes", "fails"}, []string{"", "", "its health check fails: connect: refused" + since},
			"default/web serves: 2 of 3 servers usable; 10.0.0.3: its health check fails: connect: refused" + since + "\n"},
		{"two fail", results{addr("10.0.0.1"): passes, addr("10.0.0.2"): fails, addr("10.0.0.3"): fails}, model.RejectAll,
			"2 of 3 endpoints fail their health check, such as 10.0.0.2: connect: refused, for 2m0s",
			"3 endpoints of 1 Service: 1 pass, 2 fail", nil,
			[]string{"passes", "fails", "fails"}, []string{"", "its health check fails: connect: refused" + since, "its health check fails: connect: refused" + since},
			"default/web serves: 1 of 3 servers usable; 10.0.0.2: its health check fails: connect: refused" + since + "\n"},
		{"all fail", results{addr("10.0.0.1"): fails, addr("10.0.0.2"): fails, addr("10.0.0.3"): fails}, model.UseAll,
			"all 3 endpoints fail their health check, such as 10.0.0.1: connect: refused, for 2m0s; connections go there all the same",
			"3 endpoints of 1 Service: 0 pass, 3 fail",
			[]string{"all 3 endpoints that could take connections fail their health check, so all are used: 10.0.0.1: connect: refused"},
			[]string{"fails", "fails", "fails"}, []string{"", "", ""},
			"default/web does not serve: 0 of 3 servers usable; 10.0.0.1: its health check fails: connect: refused\n"},
		{"all fail, and are rejected", results{addr("10.0.0.1"): fails, addr("10.0.0.2"): fails, addr("10.0.0.3"): fails}, model.RejectAll,
			"all 3 endpoints fail their health check, such as 10.0.0.1: connect: refused, for 2m0s; connections are rejected",
			"3 endpoints of 1 Service: 0 pass, 3 fail", nil,
			[]string{"fails", "fails", "fails"}, []string{"its health check fails: connect: refused" + since, "its health check fails: connect: refused" + since, "its health check fails: connect: refused" + since},
			"default/web does not serve: 0 of 3 servers usable; 10.0.0.1: its health check fails: connect: refused" + since + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			router := checkedService(c.results, c.all)
			s, at := serveRouting(t, router.Routing(), report.Config{Checks: c.results, Agent: report.FakeAgent{Views: router.View, Services: router.Names}})
			report := ask(t, at, api.Filter{})
			got := ""
			for _, p := range report.Problems {
				if p.Reason == model.CheckFailing && p.Object.String() == "Service default/web" {
					got += p.Message
				}
			}
			if got != c.problem {
				t.Errorf("problem %q, want %q", got, c.problem)
			}
			if out := text(t, report, show.View{}); !strings.Contains(out, c.checks+"\n") {
				t.Errorf("no %q in\n%s", c.checks, out)
			}
			if other := ask(t, at, api.Filter{Names: []string{"other"}}); len(other.Problems) > 0 {
				t.Errorf("problems of other Services: %v", other.Problems)
			}

			w := httptest.NewRecorder()
			fleetlab.Handler(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/describe?service=web", nil))
			var d api.Description
			if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.notices, d.Notices); diff != "" || d.Check != "tcp every 2s, timeout 1s, rise 2, fall 3" {
				t.Errorf("notices %s, check %q", diff, d.Check)
			}
			var out strings.Builder
			if err := show.Description(&out, &d, now, false); err != nil {
				t.Fatal(err)
			}
			for i, e := range d.Ports[0].Endpoints {
				if e.Inside.LeftOut != c.leftOut[i] || !strings.Contains(out.String(), "  "+c.column[i]+"  ") {
					t.Errorf("%s: left out %q, want %q; no %q in\n%s", e.Address, e.Inside.LeftOut, c.leftOut[i], c.column[i], out.String())
				}
			}
			out.Reset()
			serving := d.Serving()
			if err := show.Serving(&out, &serving); err != nil || out.String() != c.serves || serving.Serves != (serving.Usable > 0) {
				t.Errorf("%v, %q, want %q", err, out.String(), c.serves)
			}
		})
	}
}

// TestServingUnsynced: 11.22, 11.24, without a successful sync it is not known what the kernel
// serves, and whether a name is wrong; counters are read only for those who want them.
func TestServingUnsynced(t *testing.T) {
	router := checkedService(nil, model.UseAll)
	reads := &countedReads{}
	s := report.New(report.Config{Kernel: reads, Facts: fleetlab.NoFacts{}, Counted: true, Log: slog.New(slog.DiscardHandler),
		Agent: report.FakeAgent{Views: router.View, Services: router.Names, Routes: router.Routing}})
	mux := http.NewServeMux()
	mux.Handle(api.DescribePath, fleetlab.Handler(s))
	web := httptest.NewServer(mux)
	defer web.Close()
	at := netip.MustParseAddrPort(web.Listener.Addr().String())
	synced := false
	for _, c := range []struct {
		sync *agent.Sync
		want string
	}{
		{nil, "there was no sync yet"},
		{&agent.Sync{Err: errors.New("no memory")}, "the last sync failed"},
		{&agent.Sync{Plan: &plan.Plan{}}, ""},
		{&agent.Sync{Err: errors.New("no memory")}, "the last sync failed"},
	} {
		if c.sync != nil {
			s.Observe(c.sync)
		}
		got, err := api.NewClient(at).Serving(t.Context(), "web")
		if err != nil || (got.Unsynced == "") != (c.want == "") || !strings.HasPrefix(got.Unsynced, c.want) || !got.Serves {
			t.Errorf("%v, %+v, want %q", err, got, c.want)
		}
		synced = synced || c.sync != nil && c.sync.Err == nil
		if _, err := api.NewClient(at).Describe(t.Context(), "wbe"); err == nil || strings.HasPrefix(err.Error(), "not synced yet: ") == synced {
			t.Errorf("an unknown name, synced %t: %v", synced, err)
		}
	}
	if reads.n > 0 {
		t.Errorf("the kernel was read %d times", reads.n)
	}
	if d, err := api.NewClient(at).Describe(t.Context(), "web"); err != nil || reads.n == 0 || len(d.Notices) != 1 {
		t.Errorf("%v, %d reads of the kernel, notices %q", err, reads.n, d.Notices)
	}
	var unknown *api.UnknownError
	if _, err := api.NewClient(at).Serving(t.Context(), "wbe"); !errors.As(err, &unknown) {
		t.Errorf("an unknown name: %v", err)
	}
}

// countedReads is a kernel that counts how often counters are read.
type countedReads struct {
	idleKernel
	n int
}

func (k *countedReads) FrontendCounts() ([]counters.Frontend, error) {
	k.n++
	return nil, nil
}
