package report

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestLimitCounts: counters of the kernel that start again do not reset the sums, and the
// frontends of a service port are added up.
func TestLimitCounts(t *testing.T) {
	limited := &model.Service{Name: model.ServiceName{Namespace: "default", Name: "web"}, Extras: &model.Extras{Limits: model.Limits{Connections: 7}}}
	port := model.ServicePort{Protocol: model.TCP, Port: 80}
	frontend := func(a string) model.Frontend {
		return model.Frontend{Address: netip.MustParseAddr(a), Protocol: model.TCP, Port: 80}
	}
	one, two, other := frontend("203.0.113.1"), frontend("203.0.113.2"), frontend("203.0.113.3")
	var routes []model.Route
	for _, f := range []model.Frontend{one, two} {
		routes = append(routes, model.Route{Frontend: f, Kind: model.LoadBalancerIP, Service: limited, Port: &port})
	}
	var c limitCounts
	drops := func(f model.Frontend, n uint64) counters.Limit {
		return counters.Limit{Frontend: f.ID(), Kind: model.LimitConnections, Packets: n}
	}
	for _, step := range []struct {
		name    string
		reading []counters.Limit
		routes  []model.Route
		want    []uint64
	}{
		{"first", []counters.Limit{drops(one, 3), drops(two, 4), drops(other, 5)}, routes, []uint64{7}},
		{"growth", []counters.Limit{drops(one, 5), drops(two, 4)}, routes, []uint64{9}},
		{"the kernel's counter starts again", []counters.Limit{drops(one, 1), drops(two, 4)}, routes, []uint64{10}},
		{"a frontend without its limit", []counters.Limit{drops(one, 1)}, routes, []uint64{10}},
		{"no limits", nil, nil, nil},
		{"limits again", []counters.Limit{drops(one, 2)}, routes, []uint64{2}},
	} {
		c.add(step.reading, step.routes, time.Time{})
		var got []uint64
		for k, n := range c.ports {
			got = append(got, n)
			if k.Limit != model.LimitConnections || k.Kind != model.LoadBalancerIP || k.Port.Service != limited.Name {
				t.Errorf("%s: counted for %+v", step.name, k)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// fullKernel counts what limits have dropped, and connections of clients that they had no room for.
type fullKernel struct {
	KernelReader
	drops, counts []counters.Limit
	err           error
}

func (k *fullKernel) LimitDrops() ([]counters.Limit, error) { return k.drops, nil }
func (k *fullKernel) Unlimited() ([]counters.Limit, error)  { return k.counts, k.err }

// TestFullLimit: 4.88. A limit that had no room for clients is a problem of the Service for ten minutes after that was last
// seen, not because of what was counted before the start of the process.
func TestFullLimit(t *testing.T) {
	service := &model.Service{Name: model.ServiceName{Namespace: "shop", Name: "web"}, Extras: &model.Extras{Limits: model.Limits{ConnectionsPerClient: 7}}}
	f := model.Frontend{Address: netip.MustParseAddr("203.0.113.1"), Protocol: model.TCP, Port: 80}
	routing := &model.Routing{Routes: []model.Route{{Frontend: f, Kind: model.LoadBalancerIP, Service: service, Port: &model.ServicePort{Protocol: model.TCP, Port: 80}}}}
	kernel := &fullKernel{}
	s := counterCache{kernel: kernel, history: history{good: true}, agent: FakeAgent{Routes: func() *model.Routing { return routing }}}
	now := time.Now()
	problems := func(after time.Duration, counted uint64) (out []api.Problem) {
		t.Helper()
		kernel.counts = []counters.Limit{{Frontend: f.ID(), Kind: model.LimitClientConnections, Packets: counted}}
		now = now.Add(after)
		r := &report{}
		if err := s.addFullLimits(r, now); err != nil {
			t.Fatal(err)
		}
		return r.Problems
	}
	kernel.err = errors.New("no memory")
	if s.beginLimits() {
		t.Error("what was counted before is known without an answer")
	}
	kernel.err, kernel.counts = nil, []counters.Limit{{Frontend: f.ID(), Kind: model.LimitClientConnections, Packets: 5}}
	if !s.beginLimits() {
		t.Error("what was counted before is not known")
	}
	if got := problems(0, 5); got != nil {
		t.Errorf("problems %+v of an earlier time", got)
	}
	want := []api.Problem{{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Reason: model.LimitFull, Message: "the limit connections-per-client remembers 65536 clients over IPv4; 8 connections of others passed without it"}}
	for _, after := range []time.Duration{time.Second, fullTime - time.Second} {
		if diff := cmp.Diff(want, problems(after, 8)); diff != "" {
			t.Errorf("%s later (-want +got):\n%s", after, diff)
		}
	}
	if got := problems(2*time.Second, 8); got != nil {
		t.Errorf("problems %+v after the time", got)
	}
	if got := problems(time.Second, 1); len(got) != 1 { // the counter has begun again
		t.Errorf("problems %+v, want one", got)
	}
}
