package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// request is what an API server was asked.
type request struct {
	method, path string
	event        eventsv1.Event
}

// server is an API server that takes all events.
type server struct {
	*httptest.Server
	requests chan request
}

func newServer(t *testing.T) *server {
	s := &server{requests: make(chan request, 1000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in := request{method: r.Method, path: r.URL.Path}
		if err := json.Unmarshal(body, &in.event); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
		s.requests <- in
	}))
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, c *rest.Config) Connect {
	t.Helper()
	c.QPS = -1 // no limit
	c.ContentType = runtime.ContentTypeJSON
	out, err := eventsv1client.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return func() (rest.Interface, error) { return out.RESTClient(), nil }
}

// recorder returns one that writes to the server.
func (s *server) recorder(t *testing.T, node string) *Recorder {
	return New(t.Context(), client(t, &rest.Config{Host: s.URL}), node, slog.New(slog.DiscardHandler))
}

// TestEvents: 12.55, 12.56, 10.23 and what conflicts make (4.39), as they arrive
// at the API server. Nothing but creating and patching events is asked for
// (14.1).
func TestEvents(t *testing.T) {
	web := model.ServiceName{Namespace: "shop", Name: "web"}
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-1"}
	service := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"}
	taken := errors.New("100% taken") // no format
	for _, c := range []struct {
		name, namespace string
		record          func(*Recorder)
		want            eventsv1.Event
	}{
		{"12.56 start", "default", (*Recorder).Starting,
			eventsv1.Event{Type: "Normal", Reason: "Starting", Action: "StartKubeProxy", Regarding: node}},
		{"12.55 health server", "default", func(r *Recorder) { r.ServerFailed(HealthServerFailed, taken) },
			eventsv1.Event{Type: "Warning", Reason: "FailedToStartProxierHealthcheck", Action: "StartKubeProxy", Regarding: node, Note: "100% taken"}},
		{"12.55 metrics server", "default", func(r *Recorder) { r.ServerFailed(MetricsServerFailed, taken) },
			eventsv1.Event{Type: "Warning", Reason: "FailedToStartMetricServer", Action: "StartKubeProxy", Regarding: node, Note: "100% taken"}},
		{"10.23 health check of a Service", "shop", func(r *Recorder) { r.HealthCheckFailed(web, taken) },
			eventsv1.Event{Type: "Warning", Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Regarding: service, Note: "node node-1: 100% taken"}},
		{"3.36 failing endpoint", "shop", func(r *Recorder) { r.EndpointHealth(web, netip.MustParseAddr("10.0.0.3"), false, "connect: refused") },
			eventsv1.Event{Type: "Warning", Reason: "EndpointUnhealthy", Action: "Check", Regarding: service, Note: "node node-1: endpoint 10.0.0.3 fails its health check: connect: refused"}},
		{"3.36 healthy endpoint", "shop", func(r *Recorder) { r.EndpointHealth(web, netip.MustParseAddr("fd00::3"), true, "") },
			eventsv1.Event{Type: "Normal", Reason: "EndpointHealthy", Action: "Check", Regarding: service, Note: "node node-1: endpoint fd00::3 passes its health check again"}},
		{"rules repaired", "default", func(r *Recorder) {
			r.RulesRepaired(`7 ("nft")`, []string{"delete table ip nftproxy", "delete table ip6 nftproxy"})
		},
			eventsv1.Event{Type: "Warning", Reason: "RulesRepaired", Action: "Repair", Regarding: node,
				Note: `process 7 ("nft") has changed rules of nftproxy, which are repaired: delete table ip nftproxy; delete table ip6 nftproxy`}},
		{"notice about a Service", "shop", func(r *Recorder) {
			r.Notices([]model.Notice{{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Reason: model.Conflict, Message: "another Service has it"}})
		},
			eventsv1.Event{Type: "Warning", Reason: "Conflict", Action: "Serve", Regarding: service, Note: "another Service has it"}},
		{"notice about the Node", "default", func(r *Recorder) {
			r.Notices([]model.Notice{{Object: model.Object{Kind: "Node", Name: "node-1"}, Reason: model.NodeUnknown, Message: "not there"}})
		},
			eventsv1.Event{Type: "Warning", Reason: "NodeUnknown", Action: "Serve", Regarding: node, Note: "not there"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			c.record(s.recorder(t, "node-1"))
			got := <-s.requests
			if want := "/apis/events.k8s.io/v1/namespaces/" + c.namespace + "/events"; got.method != http.MethodPost || got.path != want {
				t.Errorf("%s %s, want POST %s", got.method, got.path, want)
			}
			c.want.ReportingController, c.want.ReportingInstance = "nftproxy", "node-1"
			c.want.Namespace = c.namespace
			ignore := cmpopts.IgnoreFields(eventsv1.Event{}, "TypeMeta", "ObjectMeta.Name", "EventTime")
			if diff := cmp.Diff(c.want, got.event, ignore); diff != "" {
				t.Error(diff)
			}
			if !strings.HasPrefix(got.event.Name, c.want.Regarding.Name+".") || time.Since(got.event.EventTime.Time) > time.Hour {
				t.Errorf("name %s, time %s", got.event.Name, got.event.EventTime)
			}
		})
	}
}

// TestAgain: the same once more is a count at the first event.
func TestAgain(t *testing.T) {
	s := newServer(t)
	r := s.recorder(t, "node-1")
	r.Starting()
	first := <-s.requests
	r.Starting()
	got := <-s.requests
	if want := first.path + "/" + first.event.Name; got.method != http.MethodPatch || got.path != want {
		t.Errorf("%s %s, want PATCH %s", got.method, got.path, want)
	}
	if got.event.Series == nil || got.event.Series.Count != 2 {
		t.Errorf("series %v", got.event.Series)
	}
}

// TestNoticesOnce: a notice makes an event when it is new, also after it was
// gone, and many make some.
func TestNoticesOnce(t *testing.T) {
	s := newServer(t)
	r := s.recorder(t, "node-1")
	notice := func(name string) model.Notice {
		return model.Notice{Object: model.ServiceName{Namespace: "default", Name: name}.Object(), Reason: model.Conflict, Message: "taken"}
	}
	// tell returns the objects of the n events that a set of notices makes;
	// the event at the end shows that there are no more.
	end := 0
	tell := func(n int, notices ...model.Notice) map[string]bool {
		t.Helper()
		r.Notices(notices)
		got := make(map[string]bool)
		for range n {
			got[(<-s.requests).event.Regarding.Name] = true
		}
		end++
		last := fmt.Sprintf("end-%d", end)
		r.HealthCheckFailed(model.ServiceName{Namespace: "default", Name: last}, errors.New("end"))
		if name := (<-s.requests).event.Regarding.Name; name != last {
			t.Errorf("one more event, about %s", name)
		}
		return got
	}
	if got := tell(2, notice("a"), notice("b")); !got["a"] || !got["b"] {
		t.Errorf("first: %v", got)
	}
	tell(0, notice("a"), notice("b"))
	if got := tell(1, notice("b"), notice("c")); !got["c"] {
		t.Errorf("one more: %v", got)
	}
	tell(0)
	if got := tell(1, notice("d")); !got["d"] {
		t.Errorf("after none: %v", got)
	}
	tell(0, model.Notice{Object: model.ServiceName{Namespace: "default", Name: "file"}.BalanceObject(), Reason: model.Conflict, Message: "taken"})
	var many []model.Notice
	for i := range 500 {
		many = append(many, notice(fmt.Sprint("many-", i)))
	}
	tell(budget.EventNotices, many...)
	tell(0, many...)
}

// TestFailures: 17.14. A failure makes an event when it begins and one when it is over, and
// those beyond the limit follow with the next calls.
func TestFailures(t *testing.T) {
	s := newServer(t)
	r := s.recorder(t, "node-1")
	web := Failure{model.ServiceName{Namespace: "shop", Name: "web"}, "ConnectionsRefused"}
	r.Failures(map[Failure]string{web: "10.1.2.2:8081 refused 5 of 5"})
	r.Failures(map[Failure]string{web: "10.1.2.2:8081 refused 9 of 9"})
	r.Failures(nil)
	r.Failures(nil)
	r.Failures(map[Failure]string{web: "10.1.2.2:8081 refused 3 of 3"})
	for _, want := range []eventsv1.Event{
		{Type: "Warning", Reason: "ConnectionsRefused", Note: "node node-1: 10.1.2.2:8081 refused 5 of 5"},
		{Type: "Normal", Reason: "ConnectionsRefusedOver", Note: "node node-1: " + over + "10.1.2.2:8081 refused 5 of 5"},
	} {
		got := (<-s.requests).event
		if got.Type != want.Type || got.Reason != want.Reason || got.Note != want.Note || got.Regarding.Name != "web" || got.Action != "Sample" {
			t.Errorf("event %+v, want %+v", got, want)
		}
	}
	if again := <-s.requests; again.method != http.MethodPatch || again.event.Series == nil || again.event.Series.Count != 2 {
		t.Errorf("%s %+v, want a count at the first event", again.method, again.event.Series)
	}
}

// TestManyFailures: events beyond the limit come with the next calls.
func TestManyFailures(t *testing.T) {
	s := newServer(t)
	r := s.recorder(t, "node-1")
	many := make(map[Failure]string)
	for i := range budget.FailureEvents + 1 {
		many[Failure{model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%02d", i)}, "ConnectionsRefused"}] = "refused"
	}
	for range 3 {
		r.Failures(many)
	}
	r.HealthCheckFailed(model.ServiceName{Namespace: "default", Name: "end"}, errors.New("end"))
	seen := make(map[string]bool)
	for {
		name := (<-s.requests).event.Regarding.Name
		if name == "end" {
			break
		}
		if seen[name] {
			t.Errorf("a second event of %s", name)
		}
		seen[name] = true
	}
	if len(seen) != len(many) {
		t.Errorf("events of %d Services, want %d", len(seen), len(many))
	}
}

// TestNoServer: the zero Recorder does nothing.
func TestNoServer(t *testing.T) {
	var r Recorder
	r.Starting()
	r.ServerFailed(HealthServerFailed, errors.New("taken"))
	r.HealthCheckFailed(model.ServiceName{Namespace: "default", Name: "web"}, errors.New("taken"))
	r.Notices([]model.Notice{{Object: model.ServiceName{Namespace: "default", Name: "web"}.Object()}})
}

// TestLimits: the API server refuses what is longer.
func TestLimits(t *testing.T) {
	s := newServer(t)
	node := strings.Repeat("n", 253)
	s.recorder(t, node).ServerFailed(HealthServerFailed, errors.New("x"+strings.Repeat("ü", 1000)))
	e := (<-s.requests).event
	if n := len(e.Note); n > 1024 || n < 1020 || !utf8.ValidString(e.Note) {
		t.Errorf("note of %d bytes: %q", n, e.Note)
	}
	if e.ReportingInstance != node[:128] || e.Regarding.Name != node {
		t.Errorf("instance %s, regarding %s", e.ReportingInstance, e.Regarding.Name)
	}
}

// outage is a connection to an API server that fails for a while.
type outage struct {
	until    time.Time
	hang     bool // instead of failing immediately
	status   int  // of answers; 0: created
	attempts atomic.Int32
	events   chan string
}

func (o *outage) RoundTrip(r *http.Request) (*http.Response, error) {
	o.attempts.Add(1)
	if time.Now().Before(o.until) {
		if o.hang {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	o.events <- string(body)
	return &http.Response{StatusCode: max(o.status, http.StatusCreated), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// TestOutage: events wait for an API server that is away, and the log reports
// it once.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log netlab.LogBuffer
		o := &outage{until: time.Now().Add(time.Minute), events: make(chan string)}
		r := New(ctx, client(t, &rest.Config{Transport: o}), "node-1", slog.New(slog.NewTextHandler(&log, nil)))
		start := time.Now()
		r.Starting()
		if !time.Now().Equal(start) {
			t.Error("recording an event takes time")
		}
		if e := <-o.events; !strings.Contains(e, `"Starting"`) {
			t.Errorf("event %s", e)
		}
		synctest.Wait()
		if text := log.String(); o.attempts.Load() < 3 || strings.Count(text, "\n") != 2 ||
			!strings.Contains(text, "connection refused") || !strings.Contains(text, "written again") {
			t.Errorf("%d attempts, log:\n%s", o.attempts.Load(), text)
		}
		cancel()
		synctest.Wait()
		r.Starting() // goes nowhere
	})
}

// TestEnd: nothing stays behind of events that are being written when the
// context ends, nor does that look like a fault. The bubble fails if a
// goroutine is left.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log netlab.LogBuffer
		o := &outage{until: time.Now().Add(time.Hour), hang: true}
		r := New(ctx, client(t, &rest.Config{Transport: o}), "node-1", slog.New(slog.NewTextHandler(&log, nil)))
		for i := range 2000 {
			r.HealthCheckFailed(model.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", i)}, errors.New("taken"))
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if text := log.String(); text != "" {
			t.Errorf("log: %s", text)
		}
	})
}

// TestSeries: after the second event of a kind, only the count is written, and that
// after a while. When none has come for some time, the next one is the first again.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := &outage{events: make(chan string, 10)}
		r := New(ctx, client(t, &rest.Config{Transport: o}), "node-1", slog.New(slog.DiscardHandler))
		written := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := len(o.events); got != len(want) {
				t.Fatalf("%d requests, want %d", got, len(want))
			}
			for _, w := range want {
				if got := <-o.events; !strings.Contains(got, w) {
					t.Errorf("written: %s, want %s", got, w)
				}
			}
		}
		for range 4 {
			r.Starting()
		}
		r.ServerFailed(HealthServerFailed, errors.New("taken"))
		written(`"Starting"`, `{"series":{"count":2,`, HealthServerFailed)
		time.Sleep(seriesTime)
		written(`{"series":{"count":4,`)
		time.Sleep(3 * seriesTime)
		written()
		r.Starting()
		written(`"Starting"`)
	})
}

// TestForbidden: without permission nothing is tried again.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log strings.Builder
		o := &outage{events: make(chan string, 10), status: http.StatusForbidden}
		r := New(ctx, client(t, &rest.Config{Transport: o}), "node-1", slog.New(slog.NewTextHandler(&log, nil)))
		for i := range 3 {
			r.HealthCheckFailed(model.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", i)}, errors.New("taken"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "events.k8s.io") || o.attempts.Load() != 3 {
			t.Errorf("%d attempts, log:\n%s", o.attempts.Load(), text)
		}
	})
}
