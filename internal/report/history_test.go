package report

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
)

// route returns a route of a Service that has an endpoint for each number.
func route(service int, endpoints ...int) *model.Route {
	s := &model.Service{Name: model.ServiceName{Namespace: "shop", Name: fmt.Sprint("svc-", service)}, Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}}
	c := &model.Choice{}
	for _, n := range endpoints {
		c.Cluster = append(c.Cluster, model.Endpoint{Host: &model.Host{Address: netip.AddrFrom4([4]byte{10, 128, 0, byte(n)}), Ready: true}, Port: 8080})
	}
	return &model.Route{Frontend: model.Frontend{Address: netip.AddrFrom4([4]byte{10, 96, byte(service >> 8), byte(service)}), Protocol: model.TCP, Port: 80},
		Service: s, Port: &s.Ports[0], Choice: c}
}

func change(service int) model.RouteChange {
	old, now := route(service, 1, 2), route(service, 1, 3)
	return model.RouteChange{Frontend: old.Frontend, Old: old, New: now}
}

func syncOf(at time.Time, changes ...model.RouteChange) *agent.Sync {
	return &agent.Sync{Started: at, Routes: changes}
}

// TestHistoryOfBalance: 11.27. Changes of a Balance are described in its own terms, even after it is gone.
func TestHistoryOfBalance(t *testing.T) {
	var h history
	now := time.Now()
	h.observe(syncOf(now.Add(-time.Hour)))
	replaced, removed := change(1), model.RouteChange{Frontend: route(2).Frontend, Old: route(2, 4)}
	for _, r := range []*model.Route{replaced.Old, replaced.New, removed.Old} {
		balance := *r.Service
		balance.Balance = true
		r.Service = &balance
	}
	h.observe(syncOf(now, replaced, removed))
	for number, want := range []string{1: "1 server replaced (10.128.0.2:8080 → 10.128.0.3:8080)", 2: "removed, 1 frontend, 1 server"} {
		if c := h.of(route(number).Service.Name, now); want != "" && c.What != want {
			t.Errorf("%q, want %q", c.What, want)
		}
	}
}

// TestHistory remembers the last change of Services, in bounded memory.
func TestHistory(t *testing.T) {
	var h history
	now := time.Now()
	name := func(n int) model.ServiceName { return route(n).Service.Name }
	if h.of(name(1), now) != nil {
		t.Error("something is known before the first sync")
	}
	h.observe(syncOf(now.Add(-time.Hour), change(1)))
	if c := h.of(name(1), now); c == nil || !c.Time.IsZero() || !strings.Contains(c.What, "not since this nftproxy started, 1h0m0s ago") {
		t.Errorf("after the start: %+v", c)
	}
	h.observe(&agent.Sync{Started: now, Routes: []model.RouteChange{change(1)}, Err: errors.New("refused")})
	if c := h.of(name(1), now); !c.Time.IsZero() {
		t.Errorf("after a failure: %+v", c)
	}
	h.observe(syncOf(now.Add(-time.Minute), change(1)))
	if c := h.of(name(1), now); now.Sub(c.Time) != time.Minute || c.What != "1 endpoint replaced (10.128.0.2:8080 → 10.128.0.3:8080)" || c.OnlyEndpoint != "" {
		t.Errorf("after a change: %+v", c)
	}
	lone := syncOf(now.Add(-time.Second), model.RouteChange{Frontend: route(1).Frontend, Old: route(1, 3), New: route(1, 7)})
	lone.Duration = 250 * time.Millisecond
	h.observe(lone)
	if c := h.of(name(1), now); c.OnlyEndpoint != "10.128.0.7:8080" || c.AgeSeconds != 0.75 {
		t.Errorf("with one endpoint, 0.75 s after the kernel has it: %+v", c)
	}
	var many []model.RouteChange
	for i := range maxDetailed + 1 {
		many = append(many, change(i))
	}
	h.observe(syncOf(now, many...))
	if c := h.of(name(1), now); c.What != "changed, together with 64 other Services" {
		t.Errorf("after many changes: %+v", c)
	}
	for i := range 2 * maxHistory {
		h.observe(syncOf(now.Add(time.Duration(i)*time.Second), change(1000+i)))
		if len(h.services) > maxHistory {
			t.Fatalf("%d Services are remembered", len(h.services))
		}
	}
	later := now.Add(2 * maxHistory * time.Second)
	if c := h.of(name(1), later); !c.Time.IsZero() || !strings.HasPrefix(c.What, "not within the last ") {
		t.Errorf("a forgotten change: %+v", c)
	}
	if c := h.of(name(1000+2*maxHistory-1), later); later.Sub(c.Time) != time.Second {
		t.Errorf("the last change: %+v", c)
	}
}

// BenchmarkHistory measures what an average sync pays for the history.
func BenchmarkHistory(b *testing.B) {
	for _, n := range []int{1, maxDetailed, maxHistory} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var changes []model.RouteChange
			for i := range n {
				changes = append(changes, change(i))
			}
			var h history
			h.observe(syncOf(time.Now()))
			b.ReportAllocs()
			for b.Loop() {
				h.observe(syncOf(time.Now(), changes...))
			}
		})
	}
}
