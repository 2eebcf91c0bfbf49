package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/top"
)

// fakeCounters is what a status server knows, without a kernel.
type fakeCounters struct {
	routing     *model.Routing
	connections Connections
	err         error
	reads       int
	wait        func() // in every reading; nil: not at all

	endpoint      netip.AddrPort // that every frontend uses
	endpointReads int
}

func (n *fakeCounters) Connections() (*model.Routing, Connections, error) {
	n.reads++
	if n.wait != nil {
		n.wait()
	}
	return n.routing, n.connections, n.err
}

func (n *fakeCounters) EndpointCounts(frontends []model.Frontend) (out []counters.Endpoint, err error) {
	n.endpointReads++
	for i, f := range frontends {
		out = append(out, counters.Endpoint{Frontend: f, Endpoint: n.endpoint, Connections: uint64(n.endpointReads * (i + 1))},
			counters.Endpoint{Frontend: f, Endpoint: n.endpoint, Connections: 1}) // another slot
	}
	return out, n.err
}

func (n *fakeCounters) Summary(r *model.Routing) *api.Status {
	out := &api.Status{Daemon: api.Daemon{Version: "v1", Source: "files: services.yaml"}, Healthy: r != nil}
	if r != nil {
		out.Node = r.NodeName
		out.Problems = r.Notices
	}
	return out
}

// services returns the routing of that many Services with two endpoints each.
func services(n int) *model.Routing {
	s := &model.Snapshot{}
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		s.Services = append(s.Services, &model.Service{
			Name:       model.ServiceName{Namespace: "shop", Name: name},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		})
		s.Slices = append(s.Slices, &model.EndpointSlice{
			Namespace: "shop", Name: name, Service: name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{
				{Address: netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}), Ready: true, Serving: true, Place: model.OnNode("node-1")},
				{Address: netip.AddrFrom4([4]byte{10, 129, byte(i >> 8), byte(i)}), Ready: true, Serving: true, Place: model.OnNode("node-2")},
			},
		})
	}
	return model.Resolve(s, model.Config{NodeName: "node-1", Counters: true})
}

// count sets the connections of the first Services.
func (n *fakeCounters) count(connections ...uint64) {
	n.connections = Connections{Frontends: make(map[model.FrontendID]uint64)}
	for i, c := range connections {
		n.connections.Total += c
		n.connections.Frontends[n.routing.Routes[i].Frontend.ID()] = c
	}
}

func feedOf(n *fakeCounters) *feed {
	return newFeed(&Config{Counted: true, Log: slog.New(slog.DiscardHandler)}, n, new(history))
}

func get(t *testing.T, f *feed, query string) (*api.Sample, int) {
	t.Helper()
	w := httptest.NewRecorder()
	handler(slog.New(slog.DiscardHandler), f.limit, atOnce(f.answer)).ServeHTTP(w, httptest.NewRequest("GET", api.LivePath+query, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	s, size := &api.Sample{}, w.Body.Len()
	if err := json.NewDecoder(w.Body).Decode(s); err != nil {
		t.Fatal(err)
	}
	return s, size
}

func names(s *api.Sample) (out string) {
	for _, v := range s.Services {
		out += v.Name + " "
	}
	return strings.TrimSpace(out)
}

// TestFeed: the busiest Services come first, and two samples give their rates (11.12).
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeCounters{routing: services(4)}
		n.count(1, 5, 0, 9)
		f := feedOf(n)
		time.Sleep(time.Second)
		first, _ := get(t, f, "")
		if got := names(first); got != "web-3 web-1 web-0 web-2" || first.Totals != (api.Totals{Services: 4, Frontends: 4, Endpoints: 8, Connections: 15}) || !first.Complete() {
			t.Errorf("%s, %+v", got, first.Totals)
		}
		time.Sleep(2 * time.Second)
		n.count(7, 5, 0, 11)
		second, _ := get(t, f, "")
		if got := names(second); got != "web-0 web-3 web-1 web-2" {
			t.Errorf("after further connections: %s", got)
		}
		r := top.RatesOf(first, second)
		if web := (model.ServiceName{Namespace: "shop", Name: "web-0"}); !r.Known || r.Total != 4 || r.Services[web] != 3 {
			t.Errorf("rates %+v", r)
		}
		// A change of the routes is seen, and so is one that leaves the number of them.
		n.routing = services(5)
		n.count(7, 5, 0, 11)
		time.Sleep(2 * time.Second)
		if s, _ := get(t, f, ""); s.Totals.Services != 5 || s.Totals.Endpoints != 10 || len(s.Services) != 5 || s.Services[0].Endpoints != 2 {
			t.Errorf("another Service: %+v", s.Totals)
		}
		n.routing.Routes[2].Choice = &model.Choice{}
		routes := slices.Clone(n.routing.Routes)
		routes[1].Choice = &model.Choice{}
		n.routing = &model.Routing{Routes: routes}
		time.Sleep(2 * time.Second)
		if s, _ := get(t, f, ""); s.Totals.Endpoints != 6 || s.Totals.Unserved != 2 {
			t.Errorf("two Services without endpoints: %+v", s.Totals)
		}
		if second.RecentSince != first.Uptime || *second.Services[0].Recent != 6 || second.Instance != first.Instance || !second.Time.After(first.Time) {
			t.Errorf("second sample %+v", second)
		}
	})
}

// TestFeedReadsSeldom: the kernel is read once a second at most, less often if that
// takes long, and not at all without readers.
func TestFeedReadsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeCounters{routing: services(2)}
		n.count(1, 2)
		f := feedOf(n)
		for range 10 {
			get(t, f, "")
			time.Sleep(50 * time.Millisecond)
		}
		if n.reads != 1 {
			t.Errorf("%d readings in half a second", n.reads)
		}
		n.wait = func() { time.Sleep(time.Second) }
		time.Sleep(time.Second)
		for range 8 {
			get(t, f, "")
			time.Sleep(time.Second)
		}
		if n.reads != 2 {
			t.Errorf("%d readings although each takes a second", n.reads)
		}
		time.Sleep(time.Hour)
		if s, _ := get(t, f, ""); n.reads != 3 || s.RecentSince != 0 {
			t.Errorf("%d readings, recent ones since %v", n.reads, s.RecentSince)
		}
	})
}

// TestFeedIsBounded: the answer about 10,000 Services is small; a filter and a detail
// find each of them (11.13).
func TestFeedIsBounded(t *testing.T) {
	n := &fakeCounters{routing: services(10_000)}
	for i := range 500 {
		n.routing.Notices = append(n.routing.Notices, model.Notice{Object: model.Object{Kind: "Service", Namespace: "shop", Name: fmt.Sprint(i)}, Message: "not served"})
	}
	n.count()
	f := feedOf(n)
	s, size := get(t, f, "")
	if len(s.Services) != 100 || s.Matching != 10_000 || s.Complete() || len(s.Problems) != 50 || s.ProblemCount != 500 || size > 40<<10 {
		t.Errorf("%d of %d Services, %d of %d problems, %d bytes", len(s.Services), s.Matching, len(s.Problems), s.ProblemCount, size)
	}
	if s, _ := get(t, f, "?filter=SHOP/web-999&limit=5"); s.Matching != 11 || len(s.Services) != 5 || s.Totals.Services != 10_000 {
		t.Errorf("filter: %d of %d", len(s.Services), s.Matching)
	}
	s, _ = get(t, f, "?limit=0&service=shop/web-9876")
	if d := s.Detail; len(s.Services) > 0 || d == nil || d.Name != "web-9876" || len(d.Ports) != 1 || d.Ports[0].Frontends[0].Address != "10.96.38.148:80" ||
		fmt.Sprint(d.Ports[0].EndpointList) != "[{10.128.38.148:8080 true <nil> <nil>} {10.129.38.148:8080 false <nil> <nil>}]" {
		t.Errorf("detail %+v", d)
	}
	if s, _ := get(t, f, "?service=shop/nope"); s.Detail != nil {
		t.Errorf("detail of an unknown Service: %+v", s.Detail)
	}
}

// TestFeedCountsEndpoints: the counters of the endpoints of a Service are read once for
// all readers, and are a sum over its slots and frontends (11.23).
func TestFeedCountsEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeCounters{routing: services(3), endpoint: netip.MustParseAddrPort("10.128.0.1:8080")}
		n.count(0, 6)
		f := newFeed(&Config{Counted: true, EndpointsCounted: true, Log: slog.New(slog.DiscardHandler)}, n, new(history))
		time.Sleep(time.Second)
		var samples []*api.Sample
		for range 2 {
			var s *api.Sample
			for range 3 {
				s, _ = get(t, f, "?service=shop/web-1")
			}
			samples = append(samples, s)
			time.Sleep(2 * time.Second)
		}
		if n.endpointReads != 2 {
			t.Errorf("%d readings", n.endpointReads)
		}
		p := &samples[1].Detail.Ports[0]
		if e := p.EndpointList; len(e) != 2 || e[0].Connections == nil || *e[0].Connections != 3 || e[1].Connections != nil {
			t.Errorf("endpoints %+v", e)
		}
		if r := top.RatesOf(samples[0], samples[1]); r.Endpoints[top.EndpointKey(p, &p.EndpointList[0])] != 0.5 {
			t.Errorf("rates %v", r.Endpoints)
		}
	})
}

// sixtyFail are results of checks: of each of 100 Services, 60 endpoints fail.
type sixtyFail struct{}

func (sixtyFail) Result(model.ServiceName, netip.Addr) (model.CheckResult, bool) {
	return model.CheckResult{}, false
}

func (sixtyFail) Each(f func(model.ServiceName, netip.Addr, model.CheckResult)) {
	for i := range 100 {
		for j := range 61 {
			name := model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
			f(name, netip.AddrFrom4([4]byte{10, 0, byte(i), byte(60 - j)}), model.CheckResult{Healthy: j == 60, Since: time.Unix(1000, 0), Message: "connect: refused"})
		}
	}
}

// TestFeedChecks: 3.34, the detail of a Service has the endpoints that fail, some of them
// if they are many.
func TestFeedChecks(t *testing.T) {
	n := &fakeCounters{routing: services(3)}
	n.count(1)
	s, _ := get(t, newFeed(&Config{Counted: true, Checks: sixtyFail{}, Log: slog.New(slog.DiscardHandler)}, n, new(history)), "?service=shop/web-1")
	d := s.Detail
	if d == nil || d.FailingCount != 60 || len(d.Failing) != 50 || d.Failing[0].Address != "10.0.1.1" || d.Failing[0].Message != "connect: refused" || d.Failing[0].Since.Unix() != 1000 {
		t.Errorf("detail %+v", d)
	}
}

func TestFeedRefuses(t *testing.T) {
	n := &fakeCounters{routing: services(1)}
	n.count(1)
	f := feedOf(n)
	ask := func(query string, status int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler(slog.New(slog.DiscardHandler), f.limit, atOnce(f.answer)).ServeHTTP(w, httptest.NewRequest("GET", api.LivePath+query, nil))
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%.50s: %d %s, want %d with %q", query, w.Code, w.Body, status, want)
		}
	}
	for _, q := range []string{"?limit=-1", "?limit=1001", "?limit=many"} {
		ask(q, 400, "is not a number from 0 to 1000")
	}
	ask("?filter="+strings.Repeat("a", 1000), 400, "at most 512 bytes")
	f = feedOf(&fakeCounters{err: errors.New("no memory")})
	ask("", 500, "read connections: no memory")
}

// TestFeedBeforeFirstSync reports that nothing is served yet.
func TestFeedBeforeFirstSync(t *testing.T) {
	s, _ := get(t, feedOf(&fakeCounters{}), "?service=shop/web-0")
	if s.Healthy || len(s.Services) > 0 || s.Detail != nil || s.Version != "v1" {
		t.Errorf("%+v", s)
	}
}

// TestManyReaders: a few requests are answered concurrently; further ones get 429.
func TestManyReaders(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	n := &fakeCounters{wait: func() { arrived <- struct{}{}; <-proceed }}
	f := feedOf(n)
	codes := make(chan int)
	ask := func() {
		w := httptest.NewRecorder()
		handler(slog.New(slog.DiscardHandler), f.limit, atOnce(f.answer)).ServeHTTP(w, httptest.NewRequest("GET", api.LivePath, nil))
		codes <- w.Code
	}
	for range 5 {
		go ask()
	}
	<-arrived // the others wait for the same reading
	if code := <-codes; code != http.StatusTooManyRequests {
		t.Errorf("the fifth gets %d", code)
	}
	close(proceed)
	for range 4 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	}
}

// changing is a sync that changed some Services.
func changing(number int, routing *model.Routing, changed int) *agent.Sync {
	s := &agent.Sync{Cause: agent.Change, Started: time.Now(), Duration: time.Duration(number) * time.Millisecond,
		Plan: &plan.Plan{Changes: make([]plan.Change, changed)}}
	for i := range routing.Routes[:changed] {
		s.Routes = append(s.Routes, model.RouteChange{Frontend: routing.Routes[i].Frontend, New: &routing.Routes[i]})
	}
	return s
}

// TestChanges remembers a limited number of changes, newest first, each with a few
// names (11.12).
func TestChanges(t *testing.T) {
	n := &fakeCounters{routing: services(40)}
	n.count()
	f := feedOf(n)
	for i := 1; i <= 300; i++ {
		f.history.observe(changing(i, n.routing, min(i, 8)))
	}
	f.history.observe(changing(301, n.routing, 0)) // no change
	s, _ := get(t, f, "")
	if len(s.Changes) != 100 || s.Changes[0].Number != 300 || s.Changes[99].Number != 201 {
		t.Fatalf("%d changes, the newest %+v", len(s.Changes), s.Changes[0])
	}
	if c := s.Changes[0]; c.Cause != "change" || fmt.Sprint(c.Services) != "[shop/web-0 shop/web-1 shop/web-2 shop/web-3 shop/web-4]" || c.More != 3 || c.Added != 8 || c.Seconds != 0.3 {
		t.Errorf("the newest %+v", c)
	}
	if got := s.Syncs; got != (api.Syncs{Total: 301, Recent: 256, Last: 0.301, P50: 0.173, P90: 0.276, P99: 0.299, Max: 0.301}) {
		t.Errorf("syncs %+v", got)
	}
}

// TestRepeatedError is one entry, without the stack of a panic.
func TestRepeatedError(t *testing.T) {
	n := &fakeCounters{routing: services(1)}
	n.count()
	f := feedOf(n)
	f.history.observe(changing(1, n.routing, 1))
	for range 5 {
		f.history.observe(&agent.Sync{Cause: agent.Retry, Err: errors.New("no memory\nstack")})
	}
	f.history.observe(&agent.Sync{Cause: agent.Retry, Err: errors.New(strings.Repeat("é", 400))})
	f.history.observe(changing(1, n.routing, 0)) // it works again
	s, _ := get(t, f, "")
	if len(s.Changes) != 4 || s.Changes[0].Error != "" || s.Changes[1].Error != strings.Repeat("é", 250) || s.Syncs.Failed != 6 {
		t.Fatalf("%+v", s.Changes)
	}
	if c := s.Changes[2]; c.Error != "no memory" || c.Repeated != 4 {
		t.Errorf("repeated %+v", c)
	}
}
