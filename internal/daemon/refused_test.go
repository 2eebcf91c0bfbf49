package daemon

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/apply/applytest"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
	"github.com/nftproxy/nftproxy/internal/status"
)

// TestRefusedByKernel: 13.25. A Service that the kernel refuses is told of by an
// event about it, by a metric and by the status, all of which leave a healthy
// node.
func TestRefusedByKernel(t *testing.T) {
	events := make(chan eventsv1.Event, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e eventsv1.Event
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		events <- e
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}))
	defer server.Close()
	client, err := eventsv1client.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.NewFlags(pflag.NewFlagSet("run", pflag.ContinueOnError)).Load()
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*apply.Conn
	ns := netlab.TestNamespace(t)
	for i := range conns {
		if err := ns.Do(func() (err error) { conns[i], err = apply.Open(); return err }); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	discard := slog.New(slog.DiscardHandler)
	snapshot := &model.Snapshot{Services: []*model.Service{refusable("bad", 1), refusable("good", 2)}}
	d := &Daemon{Config: cfg, Log: discard, Source: Source{
		Load: func() (*model.Update, error) { return snapshot.Update(), nil }, Events: client}}

	ctx, stop := context.WithCancel(t.Context())
	w := d.newWork(ctx, nil, conns[0], conns[1])
	applier := apply.New(applytest.Picky{Conn: conns[0], Comments: "default/bad"}, discard)
	applier.Observe, w.applier = w.applier.Observe, applier
	w.cleaner = conntrack.New(new(witness), conntrack.Config{Log: discard, Observe: func(model.Family, time.Duration, int) {}})
	synced := make(chan *agent.Sync, 1)
	c := w.agentConfig(conns[0])
	c.Observers = append(c.Observers, func(s *agent.Sync) { synced <- s })
	w.agent = agent.New(c)
	ended := make(chan error, 1)
	go func() { ended <- w.agent.Run(ctx) }()
	if s := <-synced; s.Err != nil {
		t.Errorf("sync: %v", s.Err)
	}

	if e := <-events; e.Reason != "RefusedByKernel" || e.Regarding.Kind != "Service" || e.Regarding.Name != "bad" ||
		!strings.Contains(e.Note, "10.96.0.1 . tcp . 80") {
		t.Errorf("event %+v", e)
	}
	metrics := get(t, w.metrics.Handler(w.paths()), "/metrics")
	for _, want := range []string{`nftproxy_notices{reason="RefusedByKernel"} 1`, `nftproxy_transaction_failures_total{error="ERANGE"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	var report status.Report
	if err := json.Unmarshal([]byte(get(t, w.status, status.Path)), &report); err != nil {
		t.Fatal(err)
	}
	if !report.Healthy || report.Services != 1 || len(report.Problems) != 1 || report.Problems[0].Object != "Service default/bad" {
		t.Errorf("status %+v", report)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func refusable(name string, n byte) *model.Service {
	return &model.Service{
		Name: model.ServiceName{Namespace: "default", Name: name}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, n})},
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
}

func get(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	if r.Code != http.StatusOK {
		t.Errorf("GET %s: %d", path, r.Code)
	}
	return r.Body.String()
}
