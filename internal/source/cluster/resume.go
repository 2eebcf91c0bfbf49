package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
)

// resumeWatches wraps a transport so that a watch which cannot be resumed is tried
// again. The client library reads all objects again instead, unless the connection
// was refused; but while a load balancer has no server to forward to, it may as
// well accept connections and close them, or answer itself. After that
// all nodes would read all objects at the same time.
func resumeWatches(next http.RoundTripper) http.RoundTripper { return &resuming{next} }

type resuming struct{ http.RoundTripper }

// WrappedRoundTripper lets the client library find the transport that it has wrapped.
func (t *resuming) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

func (t *resuming) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if !resumesWatch(r) || r.Context().Err() != nil {
		return answer, err
	}
	if err != nil {
		return nil, &unreachable{err.Error()}
	}
	switch answer.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil, errors.Join(&unreachable{answer.Status}, answer.Body.Close())
	}
	return answer, nil
}

// resumesWatch reports whether a request continues a watch.
func resumesWatch(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("watch") && q.Has("resourceVersion") && !q.Has("sendInitialEvents")
}

// unreachable is an error like a refused connection, and like no other that the
// client library looks for in the text.
type unreachable struct{ reason string }

func (e *unreachable) Error() string { return fmt.Sprintf("no API server answers (%q)", e.reason) }

func (e *unreachable) Unwrap() error { return syscall.ECONNREFUSED }
