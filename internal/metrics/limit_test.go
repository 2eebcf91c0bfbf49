package metrics_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/report"
)

// TestManyScrapes: four scrapes are answered concurrently, from any client; the next one
// is refused, and when there is room, answered.
func TestManyScrapes(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	set := newSet()
	server := httptest.NewServer(handler(set))
	defer server.Close()
	set.FollowConnections(func() (map[report.Owner]uint64, error) {
		arrived <- struct{}{}
		<-proceed
		return nil, nil
	})
	scrape := func() int {
		r, err := server.Client().Get(server.URL + "/metrics")
		if err != nil {
			return 0
		}
		defer r.Body.Close()
		_, _ = io.Copy(io.Discard, r.Body)
		return r.StatusCode
	}
	codes := make(chan int)
	for range 5 {
		go func() { codes <- scrape() }()
	}
	<-arrived
	if code := <-codes; code != http.StatusServiceUnavailable { // the others wait
		t.Errorf("the fifth scrape is answered %d", code)
	}
	for i := range 4 {
		if i > 0 {
			<-arrived
		}
		proceed <- struct{}{}
	}
	for range 4 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one of four scrapes is answered %d", code)
		}
	}
}

// oneConnection is a listener with one client.
type oneConnection chan net.Conn

func (l oneConnection) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l oneConnection) Close() error   { return nil }
func (l oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// TestAnswerNotRead: a client that does not read its answer is given up after
// 30 s, although the server gives profiles more time.
func TestAnswerNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan time.Duration, 1)
		start := time.Now()
		server := &http.Server{Handler: handler(newSet()), WriteTimeout: 10 * time.Minute, ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				closed <- time.Since(start)
			}
		}}
		l := make(oneConnection)
		go server.Serve(l)
		ours, theirs := net.Pipe()
		defer ours.Close()
		l <- theirs
		io.WriteString(ours, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
		if after := <-closed; after < 30*time.Second || after > 31*time.Second {
			t.Errorf("closed after %s", after)
		}
		close(l)
	})
}
