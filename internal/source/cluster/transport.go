package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"syscall"
	"time"
)

// maxSilence is more than an API server leaves between two messages: it sends a
// bookmark over every watch each minute, and ends other requests after one.
const maxSilence = 3 * time.Minute

// endSilence returns a wrapper of transports that ends requests when no part of an answer arrives for that long.
// The client library notices a dead connection; but a load balancer in between can keep a connection alive over
// which nothing arrives, and a watch would wait forever.
func endSilence(limit time.Duration, log *slog.Logger) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &impatient{next, limit, log} }
}

type impatient struct {
	http.RoundTripper
	limit time.Duration
	log   *slog.Logger
}

// WrappedRoundTripper lets the client library find the transport that it has wrapped.
func (t *impatient) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

func (t *impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	silent := fmt.Errorf("the API server sent nothing for %v: %w", t.limit, os.ErrDeadlineExceeded)
	timer := time.AfterFunc(t.limit, func() {
		t.log.Warn("the API server is silent; the request is repeated", "path", r.URL.Path, "for", t.limit)
		cancel(silent)
	})
	answer, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if context.Cause(ctx) == silent {
			err = silent
		}
		cancel(nil)
		return nil, err
	}
	b := &audible{ReadCloser: answer.Body, ctx: ctx, cancel: cancel, timer: timer, limit: t.limit}
	answer.Body = b
	return answer, nil
}

// audible is the body of an answer; it ends after silence.
type audible struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

func (b *audible) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && errors.Is(context.Cause(b.ctx), os.ErrDeadlineExceeded) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *audible) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// resumeWatches wraps a transport so that a watch which cannot be resumed is tried again. The client library reads
// all objects again instead, unless the connection was refused; but while a load balancer has no server to forward
// to, it may as well accept connections and close them, or answer itself. After that all nodes would read all
// objects at the same time.
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

func resumesWatch(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("watch") && q.Has("resourceVersion") && !q.Has("sendInitialEvents")
}

// unreachable is an error like a refused connection, and like no other that the
// client library looks for in the text.
type unreachable struct{ reason string }

func (e *unreachable) Error() string { return fmt.Sprintf("no API server answers (%q)", e.reason) }

func (e *unreachable) Unwrap() error { return syscall.ECONNREFUSED }
