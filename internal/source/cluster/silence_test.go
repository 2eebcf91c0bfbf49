package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/model"
)

// quietServer is an API server that falls silent. It has the Service web, and
// later the Service later.
type quietServer struct {
	dumbList, deafWatch bool

	mu             sync.Mutex
	lists, watches map[string]int // by path
}

const (
	quietService = `{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": %q, "resourceVersion": "2"},
		"spec": {"clusterIP": %q, "ports": [{"port": 80}]}}`
)

func (s *quietServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, services := r.URL.Query(), strings.HasSuffix(r.URL.Path, "/services")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case q.Has("watch"):
		n := s.count(s.watches, r)
		w.WriteHeader(http.StatusOK)
		if services && s.deafWatch && n > 1 {
			event := fmt.Sprintf(`{"type": "ADDED", "object": `+quietService+`}`, "later", "10.96.0.2")
			fmt.Fprintln(w, strings.ReplaceAll(event, "\n", ""))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		if n := s.count(s.lists, r); n == 1 && s.dumbList {
			<-r.Context().Done()
			return
		}
		items := ""
		if services {
			items = fmt.Sprintf(quietService, "web", "10.96.0.1")
		}
		fmt.Fprintf(w, `{"metadata": {"resourceVersion": "1"}, "items": [%s]}`, items)
	}
}

func (s *quietServer) count(n map[string]int, r *http.Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n[r.URL.Path]++
	return n[r.URL.Path]
}

// Requests to an API server that is silent over a live connection are repeated:
// a list that does not start or does not end, and a watch.
func TestSilence(t *testing.T) {
	const limit = 1100 * time.Millisecond // of a shorter watch the client library says that it failed
	for name, c := range map[string]struct {
		server       *quietServer
		want, listed int
	}{
		"a list without an answer": {&quietServer{dumbList: true}, 1, 2},
		"a watch without events":   {&quietServer{deafWatch: true}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.server
			s.lists, s.watches = make(map[string]int), make(map[string]int)
			web := httptest.NewServer(s)
			defer web.Close()
			defer web.CloseClientConnections()
			discard := slog.New(slog.DiscardHandler)
			client, err := kubernetes.NewForConfig(&rest.Config{Host: web.URL, WrapTransport: endSilence(limit, discard)})
			check(t, err)
			cluster := New(clientOf(client), Config{NodeConfig: model.Config{NodeName: "n1"}, Log: discard})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			changed := make(chan struct{}, 100)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				cluster.Run(ctx, func() { changed <- struct{}{} })
			}()
			defer func() { cancel(); <-ended }()
			check(t, cluster.waitSynced(ctx))
			for n := 0; n != c.want; {
				select {
				case <-changed:
				case <-ctx.Done():
					t.Fatalf("%d Services are known, want %d", n, c.want)
				}
				snapshot, err := cluster.Snapshot()
				check(t, err)
				n = len(snapshot.Services)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := s.lists["/api/v1/services"]; n != c.listed {
				t.Errorf("Services were listed %d times, want %d", n, c.listed)
			}
		})
	}
}
