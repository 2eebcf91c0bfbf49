package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// dialTimeout is how long an address may take to accept a connection while there are
	// others, and again to send something if it has not failed lately.
	dialTimeout = 2 * time.Second
	// avoidTime is how long an address is tried after the others once it has failed.
	avoidTime = time.Minute
)

// Dialer connects clients to API servers whose address, from the kubeconfig, is served by a Service of the files.
// While that address does not answer, because its rules are not in the kernel yet or lead to an endpoint that
// fails, the Dialer connects to the endpoints that the files name: the rules may depend on the answer, so the
// client must not depend on the rules. Certificates are still checked against the name in the kubeconfig.
type Dialer struct {
	network   network
	mu        sync.Mutex
	endpoints Endpoints            // nil: none are known
	failed    map[string]time.Time // addresses, by their last failure
}

// Endpoints returns where a Service of files forwards connections to an address.
type Endpoints interface {
	EndpointsFor(netip.AddrPort) []netip.AddrPort
}

type network interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewDialer returns a dialer that knows no endpoints yet.
func NewDialer() *Dialer {
	system := struct {
		*net.Dialer
		*net.Resolver
	}{&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}, net.DefaultResolver}
	return &Dialer{network: system, failed: make(map[string]time.Time)}
}

// Follow sets the source of endpoints.
func (d *Dialer) Follow(endpoints Endpoints) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints = endpoints
}

// DialContext dials an address, or an endpoint in its place.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	all := d.addressesToDial(ctx, address)
	var errs []error
	for i, a := range all {
		c, err := d.dialOne(ctx, network, a, i < len(all)-1, len(all) > 1)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// dialOne dials one address. Every address but the last has a dial timeout; with several,
// the first read has one, too.
func (d *Dialer) dialOne(ctx context.Context, network, address string, more, others bool) (net.Conn, error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if more {
		limited, cancel = context.WithTimeout(ctx, dialTimeout)
	}
	defer cancel()
	c, err := d.network.DialContext(limited, network, address)
	if err != nil {
		if ctx.Err() == nil {
			d.avoidAddress(address)
		}
		return nil, err
	}
	h := &heard{Conn: c, dialer: d, address: address}
	if others && !d.hasFailed(address) {
		h.limit = time.AfterFunc(dialTimeout, func() { // does not read limit, which may not be set yet
			h.once.Do(h.avoid)
			_ = h.Conn.Close()
		})
	}
	return h, nil
}

// addressesToDial returns the addresses to dial: the one of the kubeconfig, then its endpoints in
// random order, so that not all nodes use the same one; those that have failed come last.
func (d *Dialer) addressesToDial(ctx context.Context, address string) []string {
	d.mu.Lock()
	endpoints := d.endpoints
	d.mu.Unlock()
	out := []string{address}
	if endpoints == nil {
		return out
	}
	for _, to := range d.resolveAddress(ctx, address) {
		for _, e := range endpoints.EndpointsFor(to) {
			if !slices.Contains(out, e.String()) {
				out = append(out, e.String())
			}
		}
	}
	others := out[1:]
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, at := range d.failed {
		if time.Since(at) >= avoidTime {
			delete(d.failed, a)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return d.failed[a].Compare(d.failed[b]) })
	return out
}

func (d *Dialer) avoidAddress(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[address] = time.Now()
}

// hasFailed reports whether an address has failed within [avoidTime]. It is then given
// all the time that it needs: all API servers may be slow.
func (d *Dialer) hasFailed(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, failed := d.failed[address]
	return failed && time.Since(at) < avoidTime
}

func (d *Dialer) resolveAddress(ctx context.Context, address string) (out []netip.AddrPort) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses, err := d.network.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, a := range addresses {
		out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return out
}

// heard is a connection that reports when it is closed without an answer: a hung server still accepts connections.
type heard struct {
	net.Conn
	dialer  *Dialer
	address string
	once    sync.Once
	limit   *time.Timer // ends the connection; nil: never
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.once.Do(h.stop)
	}
	return n, err
}

func (h *heard) Close() error {
	h.once.Do(func() {
		h.stop()
		h.avoid()
	})
	return h.Conn.Close()
}

func (h *heard) avoid() { h.dialer.avoidAddress(h.address) }

func (h *heard) stop() {
	if h.limit != nil {
		h.limit.Stop()
	}
}

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
