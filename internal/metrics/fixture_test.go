package metrics_test

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

func newSet(families ...model.Family) *metrics.Set {
	return metrics.New("v1.2.3", families, slog.New(slog.DiscardHandler))
}

// started is when the syncs of these tests begin.
var started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// snapshot has these services, each with an endpoint on another node.
func snapshot(services ...*model.Service) *model.Snapshot {
	s := &model.Snapshot{Services: services}
	for i, svc := range services {
		s.Slices = append(s.Slices, &model.EndpointSlice{
			Namespace: svc.Name.Namespace, Name: svc.Name.Name + "-1", Service: svc.Name.Name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{{Address: netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}), Ready: true, Serving: true, Place: model.OnNode("node-2")}},
		})
	}
	return s
}

func service(name, clusterIP string) *model.Service {
	return &model.Service{
		Name:       model.ServiceName{Namespace: "default", Name: name},
		ClusterIPs: []netip.Addr{netip.MustParseAddr(clusterIP)},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
}

// syncOf is a successful sync of s that met an empty kernel.
func syncOf(s *model.Snapshot, cause agent.Cause, took time.Duration) *agent.Sync {
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1"}, s.Nodes, s.ServiceCIDRs)
	router.SetServices(s.Update().Services)
	state, delta := render.Start(router.Routing())
	return &agent.Sync{
		Cause: cause, Compared: cause != agent.Change, Router: router, NewNotices: true, Sizes: state.Sizes(), NewSizes: true,
		Plan: plan.Diff(delta.Before, delta.After), Started: started, Duration: took,
	}
}

// failed is the same sync, refused by the kernel.
func failed(s *agent.Sync, err error) *agent.Sync {
	f := *s
	f.Plan, f.Err = nil, err
	return &f
}

// scrape returns the value of each series at a path of the set's own server.
func scrape(t testing.TB, s *metrics.Set, path string) map[string]float64 {
	t.Helper()
	series := make(map[string]float64)
	lines := bufio.NewScanner(strings.NewReader(fetch(t, s, path)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		series[line[:i]] = value
	}
	return series
}

// fetch returns what the set's own server answers at a path.
func fetch(t testing.TB, s *metrics.Set, path string) string {
	t.Helper()
	server := httptest.NewServer(handler(s))
	defer server.Close()
	answer, err := server.Client().Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, answer.Status, body)
	}
	return string(body)
}

// expect compares series of a scrape.
func expect(t testing.TB, got, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		switch v, ok := got[name]; {
		case value == absent && ok:
			t.Errorf("%s is there: %v", name, v)
		case value != absent && !ok:
			t.Errorf("%s is not there, want %v", name, value)
		case value != absent && v != value:
			t.Errorf("%s is %v, want %v", name, v, value)
		}
	}
}

// absent stands for a series that must not be there.
const absent = -1

// handler serves a set.
func handler(s *metrics.Set) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.Handler())
	mux.Handle("/metrics/slis", s.SLIs())
	return mux
}
