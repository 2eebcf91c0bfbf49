package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// fakeTraffic is a log with a state.
type fakeTraffic struct {
	*traffic.Log
	state traffic.State
}

func (f *fakeTraffic) State() traffic.State { return f.state }

// observedFacts are the facts of a daemon that observes connections and does nothing else.
type observedFacts struct {
	fleetlab.NoFacts
	observed *observed
}

func (f observedFacts) Observed(ctx context.Context, q *api.ObserveQuery) *api.Observed {
	return f.observed.Observed(ctx, q)
}

func (f observedFacts) AddToStatus(s *api.Status, now time.Time) {
	s.Observe = f.observed.observing(now)
}

// idleAgent has done nothing.
type idleAgent struct{ report.Agent }

func (idleAgent) State() agent.State { return agent.State{} }

// observing returns a server with some events.
func observing() (*report.Server, *fakeTraffic) {
	f := &fakeTraffic{Log: traffic.NewLog()}
	f.state.Events = map[string]uint64{"denied": 2, "unused-address": 1}
	add := func(client, to, reason string, service model.PortName) {
		f.Add(&traffic.Event{Time: time.Now(), Reason: reason, Protocol: model.TCP, Client: netip.MustParseAddrPort(client), Dialled: netip.MustParseAddrPort(to), Service: service})
	}
	web := model.PortName{Service: model.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Protocol: model.TCP}
	add("10.1.0.7:4000", "10.96.0.10:80", "denied", web)
	add("10.2.0.7:4000", "10.96.0.10:80", "denied", web)
	add("10.1.0.7:4001", "10.96.9.9:80", "unused-address", model.PortName{})
	facts := observedFacts{observed: &observed{Traffic: f, level: model.ObserveRefusals, words: fleetlab.NoFacts{}}}
	c := report.Config{Log: slog.New(slog.DiscardHandler), Agent: idleAgent{}, Facts: facts, Observe: model.ObserveRefusals, Node: "node-1"}
	return report.New(c), f
}

func observe(t *testing.T, s *report.Server, query string) (out api.Observed, code int) {
	t.Helper()
	w := httptest.NewRecorder()
	fleetlab.Handler(s).ServeHTTP(w, httptest.NewRequest("GET", api.ObservePath+"?"+query, nil).WithContext(t.Context()))
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	return out, w.Code
}

// TestObserved: 17.2, 17.6, what a query selects.
func TestObserved(t *testing.T) {
	s, f := observing()
	for query, want := range map[string]string{
		"":                      "1 2 3",
		"limit=1":               "3",
		"service=shop/web":      "1 2",
		"namespace=shop":        "1 2",
		"reason=unused-address": "3",
		"reason=denied&reason=unused-address&client=10.1.0.0/16": "1 3",
		"after=1&limit=1": "2",
		"since=1h":        "1 2 3",
		"since=1ns":       "",
		"after=99":        "1 2 3",
	} {
		r, code := observe(t, s, query)
		var numbers []string
		for _, e := range r.Events {
			numbers = append(numbers, fmt.Sprint(e.Number))
		}
		if got := strings.Join(numbers, " "); got != want || code != 200 || r.Total != 3 || r.Level != "refusals" || r.Node != "node-1" {
			t.Errorf("%s: %d, events %q, want %q; %+v", query, code, got, want, r)
		}
	}
	r, _ := observe(t, s, "client=10.1.0.7&top=9")
	if len(r.Refused) != 2 || r.Refused[0].ServiceText() != "shop/web:http" || r.Refused[1].Frontend != "10.96.9.9:80" || r.Reasons["denied"] != 1 || len(r.Meanings) != 2 || r.Meanings[1].Ends != "dropped" {
		t.Errorf("%+v", r)
	}
	// The numbers by reason are about the same events as the sums.
	for query, want := range map[string]map[string]uint64{
		"top=9":                          {"denied": 2, "unused-address": 1},
		"top=9&client=10.1.0.7":          {"denied": 1, "unused-address": 1},
		"top=1&client=10.1.0.7":          {"denied": 1, "unused-address": 1}, // also of sums that are left out
		"top=9&reason=denied":            {"denied": 2},
		"top=9&outcome=endpoint-refused": nil,
		"top=9&service=shop/web":         {"denied": 2},
		"top=9&namespace=other":          nil,
	} {
		if r, _ := observe(t, s, query); !maps.Equal(r.Reasons, want) {
			t.Errorf("%s: %v, want %v", query, r.Reasons, want)
		}
	}
	for query, want := range map[string]int{"top=9&outcome=refused": 3, "top=9&outcome=endpoint-refused": 0} {
		if r, _ := observe(t, s, query); len(r.Refused) != want {
			t.Errorf("%s: %+v, want %d", query, r.Refused, want)
		}
	}
	if e := r.Events[0]; e.Client != "10.1.0.7:4000" || e.Frontend != "10.96.0.10:80" || e.ServiceText() != "shop/web:http" || e.Ends != "dropped" || e.Outcome != "refused" || e.Protocol != "tcp" {
		t.Errorf("%+v", e)
	}
	for _, query := range []string{"reason=denid", "client=x", "wait=1h", "limit=-1", "service=["} {
		if _, code := observe(t, s, query); code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, code)
		}
	}
	f.state.Err, f.state.Since, f.state.Lost = errors.New("the group is taken"), time.Now(), 7
	if r, _ := observe(t, s, ""); r.Error != "the group is taken" || r.Since.IsZero() || r.Lost != 7 {
		t.Errorf("%+v", r)
	}
	if r := s.Summary(nil); r.Observe == nil || r.Observe.Error == "" || r.Observe.Events != 3 || r.Observe.Lost != 7 {
		t.Errorf("status %+v", r.Observe)
	}
}

// TestNotObserved: 17.1, without the setting there is nothing to see.
func TestNotObserved(t *testing.T) {
	s := report.New(report.Config{Log: slog.New(slog.DiscardHandler), Agent: idleAgent{}, Facts: observedFacts{observed: new(observed)}})
	if r, code := observe(t, s, "wait=20s"); code != 200 || r.Level != "off" || len(r.Events) != 0 || r.Events == nil {
		t.Errorf("%d, %+v", code, r)
	}
	if s.Summary(nil).Observe != nil {
		t.Error("the status says that connections are observed")
	}
}

// TestManyFollowers: 17.7, some requests wait for events at the same time, and others are
// answered meanwhile; a new event wakes them.
func TestManyFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := observing()
		answers := make(chan api.Observed)
		for range budget.FollowerRequests {
			go func() {
				r, _ := observe(t, s, "after=3&wait=20s")
				answers <- r
			}()
		}
		synctest.Wait()
		if _, code := observe(t, s, "after=3&wait=20s"); code != http.StatusTooManyRequests {
			t.Errorf("one more follower: %d", code)
		}
		if r, code := observe(t, s, "after=3"); code != 200 || len(r.Events) != 0 {
			t.Errorf("a request that does not wait: %d, %+v", code, r)
		}
		f.Add(&traffic.Event{Time: time.Now(), Reason: "rate", Client: netip.MustParseAddrPort("10.1.0.7:4000"), Dialled: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: model.TCP})
		for range budget.FollowerRequests {
			if r := <-answers; len(r.Events) != 1 || r.Events[0].Number != 4 || r.Next != 4 {
				t.Errorf("a follower gets %+v", r)
			}
		}
		begun := time.Now()
		if r, code := observe(t, s, "after=4&wait=20s"); code != 200 || len(r.Events) != 0 || time.Since(begun) != 20*time.Second {
			t.Errorf("without an event: %d, %+v after %s", code, r, time.Since(begun))
		}
	})
}
