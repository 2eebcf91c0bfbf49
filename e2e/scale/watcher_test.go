package scale

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// watchTime is how long watches last. Those of a proxy end after 5 to 10 minutes,
// at a random time; here none ends while something is measured.
const watchTime = time.Hour

// fleet is the watchers of one measurement.
type fleet struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	tls      *tls.Config
	requests []request
	// lists makes watchers read all objects in a list before they watch, in place
	// of a stream of events; plain does not ask for compression.
	lists, plain bool
	bytes        atomic.Int64 // received, with TLS
	rejected     atomic.Int64 // answers 429: try again later
	broken       atomic.Int64 // connections that ended before a watcher had all objects
	// slices has the times of events of EndpointSlices after the initial ones.
	slices chan time.Time
	failed chan error

	stop    context.CancelFunc
	running sync.WaitGroup
}

// dialling is how many connections are set up at a time, so that none waits in
// the queue of the listener until it times out.
var dialling = make(chan struct{}, 128)

// start connects n watchers, each after its part of spread, and returns how long
// each took from its own start until it had all objects. With a version the
// watches resume from there instead of reading all objects.
func (f *fleet) start(n int, spread time.Duration, version string) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	f.stop, f.slices, f.failed = cancel, make(chan time.Time, 4*n), make(chan error, n*len(f.requests))
	took := make(chan time.Duration, n)
	for i := range n {
		f.running.Go(func() {
			if !await.Pace(ctx.Done(), spread*time.Duration(i)/time.Duration(n)) {
				return
			}
			f.watch(ctx, version, took)
		})
	}
	var all []time.Duration
	for range n {
		select {
		case d := <-took:
			all = append(all, d)
		case err := <-f.failed:
			return nil, err
		}
	}
	return all, nil
}

// close ends all connections.
func (f *fleet) close() {
	f.stop()
	f.running.Wait()
}

// watch is one watcher: the watches of a proxy over a connection of its own.
func (f *fleet) watch(ctx context.Context, version string, took chan<- time.Duration) {
	begin := time.Now()
	transport := &http.Transport{TLSClientConfig: f.tls, ForceAttemptHTTP2: true, DialContext: f.connect, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var ready, done sync.WaitGroup
	for _, r := range f.requests {
		ready.Add(1)
		isReady := sync.OnceFunc(ready.Done)
		done.Go(func() {
			defer isReady()
			if err := f.insist(ctx, transport, r, version, isReady); err != nil && ctx.Err() == nil {
				f.failed <- fmt.Errorf("watch %s: %w", r.kind(), err)
			}
		})
	}
	ready.Wait()
	took <- time.Since(begin)
	done.Wait()
}

func (f *fleet) connect(ctx context.Context, network, address string) (net.Conn, error) {
	dialling <- struct{}{}
	defer func() { <-dialling }()
	for {
		c, err := f.dial(ctx, network, address)
		if err == nil {
			return counted{c, &f.bytes}, nil
		}
		if ctx.Err() != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

// attempts is how often a watcher begins before it gives up.
const attempts = 100

// insist follows, and begins again if the connection ends before the watcher is up
// to date: a server without time for a new connection ends it.
func (f *fleet) insist(ctx context.Context, via http.RoundTripper, r request, version string, ready func()) (err error) {
	upToDate := false
	for range attempts {
		err = f.follow(ctx, via, r, version, func() { upToDate = true; ready() })
		if upToDate || ctx.Err() != nil {
			break
		}
		f.broken.Add(1)
	}
	return err
}

// follow sends a request, and reads events until ctx ends. ready is called when
// the watcher is up to date.
func (f *fleet) follow(ctx context.Context, via http.RoundTripper, r request, version string, ready func()) error {
	if f.lists {
		if err := f.list(ctx, via, r); err != nil {
			return err
		}
	}
	answer, err := f.send(ctx, via, r, r.url(version))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	upToDate := version != ""
	if upToDate {
		ready()
	}
	body, err := events(answer)
	if err != nil {
		return err
	}
	for {
		e, err := readEvent(body)
		switch {
		case err != nil:
			return err
		case e == complete:
			upToDate = true
			ready()
		case e == object && upToDate && r.kind() == "endpointslices":
			f.slices <- time.Now()
		}
	}
}

// events returns the messages of a watch. From Kubernetes 1.37 on a stream of events may be
// compressed, as other answers.
func events(answer *http.Response) (*bufio.Reader, error) {
	if answer.Header.Get("Content-Encoding") != "gzip" {
		return bufio.NewReader(answer.Body), nil
	}
	plain, err := gzip.NewReader(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("decompress events: %w", err)
	}
	return bufio.NewReader(plain), nil
}

// list reads all objects that a request is about.
func (f *fleet) list(ctx context.Context, via http.RoundTripper, r request) error {
	answer, err := f.send(ctx, via, r, r.listURL())
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// send sends a request, again as long as the API server asks for that.
func (f *fleet) send(ctx context.Context, via http.RoundTripper, r request, url string) (*http.Response, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Accept", r.header.Get("Accept"))
		request.Header.Set("User-Agent", r.header.Get("User-Agent"))
		if !f.plain {
			// Set here, so that only events are decompressed.
			request.Header.Set("Accept-Encoding", r.header.Get("Accept-Encoding"))
		}
		answer, err := via.RoundTrip(request)
		switch {
		case err != nil:
			return nil, err
		case answer.StatusCode == http.StatusOK:
			return answer, nil
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusTooManyRequests {
			return nil, fmt.Errorf("%s: %s", answer.Status, body)
		}
		f.rejected.Add(1)
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		if !await.Pace(ctx.Done(), time.Duration(max(seconds, 1))*time.Second) {
			return nil, ctx.Err()
		}
	}
}

// url returns the URL of a request, for a longer watch. With a version it is that
// by which a reflector resumes a watch.
func (r request) url(version string) string {
	q := url.Values{}
	for name, values := range r.query {
		q[name] = values
	}
	q.Set("timeout", watchTime.String())
	q.Set("timeoutSeconds", strconv.Itoa(int(watchTime.Seconds())))
	if version != "" {
		q.Del("sendInitialEvents")
		q.Del("resourceVersionMatch")
		q.Set("resourceVersion", version)
	}
	return r.to(q)
}

// listURL returns the URL by which nftproxy reads all objects.
func (r request) listURL() string {
	q := url.Values{}
	for _, selector := range []string{"labelSelector", "fieldSelector"} {
		if r.query.Has(selector) {
			q.Set(selector, r.query.Get(selector))
		}
	}
	return r.to(q)
}

func (r request) to(q url.Values) string {
	return (&url.URL{Scheme: "https", Host: testbed.APIAddress, Path: r.path, RawQuery: q.Encode()}).String()
}

// counted counts what is received.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
