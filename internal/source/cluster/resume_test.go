package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// listAt has the types of lists by their path.
var listAt = map[string]string{
	"/api/v1/services": `"kind": "ServiceList", "apiVersion": "v1"`,
	"/api/v1/nodes":    `"kind": "NodeList", "apiVersion": "v1"`,
	"/apis/discovery.k8s.io/v1/endpointslices": `"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1"`,
	"/apis/networking.k8s.io/v1/servicecidrs":  `"kind": "ServiceCIDRList", "apiVersion": "networking.k8s.io/v1"`,
}

// unstable is an API server behind a load balancer. It has no objects.
type unstable struct {
	mu      sync.Mutex                     // a test in a bubble holds it, except in pass
	failure func() (*http.Response, error) // of requests; nil: the server answers
	ends    []context.CancelCauseFunc      // of the open watches
	counts  map[string]int                 // requests
}

func (u *unstable) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	kind := "resumed"
	if r.URL.Query().Get("watch") == "" {
		kind = "everything"
	}
	u.counts[kind]++
	if u.failure != nil {
		return u.failure()
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Request: r}
	if kind == "everything" {
		answer.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{%s, "metadata": {"resourceVersion": "7"}, "items": []}`, listAt[r.URL.Path])))
		return answer, nil
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	u.ends = append(u.ends, cancel)
	body, events := io.Pipe()
	context.AfterFunc(ctx, func() { events.CloseWithError(context.Cause(ctx)) })
	answer.Body = body
	return answer, nil
}

// pass lets clients of the server run for a time.
func (u *unstable) pass(d time.Duration) {
	u.mu.Unlock()
	defer u.mu.Lock()
	time.Sleep(d)
	synctest.Wait()
}

// TestWatchesResume: while no API server can be reached, whatever a load balancer
// makes of that, watches are tried again; afterwards they go on where they ended.
// Nothing is listed again.
func TestWatchesResume(t *testing.T) {
	status := func(code int) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no server"))}, nil
		}
	}
	failed := func(err error) func() (*http.Response, error) {
		return func() (*http.Response, error) { return nil, err }
	}
	for name, failure := range map[string]func() (*http.Response, error){
		"refused":     failed(syscall.ECONNREFUSED),
		"reset":       failed(fmt.Errorf("read tcp: %w", syscall.ECONNRESET)),
		"closed":      failed(io.EOF),
		"unreachable": failed(syscall.EHOSTUNREACH),
		"timeout":     failed(context.DeadlineExceeded),
		"502":         status(http.StatusBadGateway),
		"503":         status(http.StatusServiceUnavailable),
		"504":         status(http.StatusGatewayTimeout),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				server := &unstable{counts: make(map[string]int)}
				client := newClient(&clients{shared: &rest.Config{Transport: server, WrapTransport: resumeWatches}}, false)
				c := New(client, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				server.mu.Lock()
				defer server.mu.Unlock()
				go func() { defer close(done); check(t, c.Run(ctx, func() {})) }()
				server.pass(time.Minute)
				if n := server.counts["everything"]; n != 4 {
					t.Fatalf("%d requests for everything at the start, want 4", n)
				}
				server.failure = failure
				for _, end := range server.ends {
					end(io.ErrUnexpectedEOF)
				}
				server.pass(10 * time.Minute)
				if n := server.counts["resumed"]; n < 20 {
					t.Errorf("watches were tried %d times, want more", n)
				}
				server.failure, server.counts["resumed"] = nil, 0
				server.pass(2 * time.Minute)
				if n := server.counts["resumed"]; n != 4 {
					t.Errorf("%d watches resumed, want 4", n)
				}
				if n := server.counts["everything"]; n != 4 {
					t.Errorf("everything was read again, by %d requests", n-4)
				}
				cancel()
				server.pass(0)
				<-done
			})
		})
	}
}

// TestOtherRequestsFail: only watches that resume are retried in this way.
func TestOtherRequestsFail(t *testing.T) {
	server := &unstable{failure: func() (*http.Response, error) { return nil, io.EOF }, counts: make(map[string]int)}
	for _, url := range []string{
		"https://x/api/v1/services", "https://x/api/v1/services?watch=true&sendInitialEvents=true&resourceVersion=1",
		"https://x/api/v1/services?watch=true",
	} {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		check(t, err)
		if _, err := resumeWatches(server).RoundTrip(request); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want EOF", url, err)
		}
	}
}
