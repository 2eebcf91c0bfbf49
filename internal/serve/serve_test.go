package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var hello = siteOf(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })

// siteOf returns a site with one page.
func siteOf(h http.HandlerFunc) *Site {
	return NewSite(Guard{}, []Page{{Path: "/", Public: true, Handler: h}})
}

// lines is a log that hands out its lines one by one.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func (l lines) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// get returns the body at an address.
func get(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error), address string) string {
	t.Helper()
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// occupied listens on a port of the loopback address.
func occupied(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestWildcard: 10.1, an unspecified IPv4 address serves IPv6 as well, and
// 10.12, nothing listens before Run.
func TestWildcard(t *testing.T) {
	for _, address := range []string{"0.0.0.0:10256", "[::]:10256"} {
		t.Run(address, func(t *testing.T) {
			lab := netlab.TestLab(t, 0)
			at := []string{net.JoinHostPort(lab.Node.IPv4.String(), "10256"), net.JoinHostPort(lab.Node.IPv6.String(), "10256")}
			log := make(lines, 10)
			s := &Server{Name: "health server", Address: address, Site: hello, Log: log.log()}
			for _, a := range at {
				if _, err := lab.Client.DialContext(t.Context(), "tcp", a); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("before Run: %v", err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- lab.Node.Do(func() error { return s.Run(ctx) }) }()
			if line := <-log; !strings.Contains(line, "listening") || !strings.Contains(line, "health server") {
				t.Errorf("log says %s", line)
			}
			for _, a := range at {
				if body := get(t, lab.Client.DialContext, a); body != "hello" {
					t.Errorf("%s answers %q", a, body)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRetry: 10.13, an address that is taken is reported once and tried again
// every 5 s.
func TestRetry(t *testing.T) {
	other := occupied(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		log := make(lines)
		s := &Server{Name: "health server", Address: other.Addr().String(), Site: hello, Log: log.log()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		if line := <-log; !strings.Contains(line, "address already in use") || !strings.Contains(line, "ERROR") {
			t.Errorf("log says %s", line)
		}
		time.AfterFunc(12*time.Second, func() { other.Close() })
		if line := <-log; !strings.Contains(line, "listening") {
			t.Errorf("log says %s", line)
		}
		if waited := time.Since(start); waited != 15*time.Second {
			t.Errorf("listens after %s", waited)
		}
		if body := get(t, nil, s.Address); body != "hello" {
			t.Errorf("answers %q", body)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestStopWhileWaiting ends a server that waits for its address.
func TestStopWhileWaiting(t *testing.T) {
	other := occupied(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &Server{Address: other.Addr().String(), Site: hello, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		if err := s.Run(ctx); err != nil || time.Since(start) != 7*time.Second {
			t.Errorf("ended after %s with %v", time.Since(start), err)
		}
	})
}

// TestHardFail: 12.55.
func TestHardFail(t *testing.T) {
	other := occupied(t)
	s := &Server{Name: "metrics server", Address: other.Addr().String(), Site: hello, HardFail: true, Log: slog.New(slog.DiscardHandler)}
	err := s.Run(t.Context())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "metrics server") {
		t.Errorf("error %v", err)
	}
}

// TestEnd: when the context ends, an answer under way is finished, connections
// without a request are closed, and the address is free.
func TestEnd(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	log := make(lines, 10)
	node := netlab.TestLab(t, 0).Node // where no other program takes the port
	s := &Server{Address: "127.0.0.1:10256", Log: log.log(), Site: siteOf(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		<-proceed
		io.WriteString(w, "hello")
	})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- node.Do(func() error { return s.Run(ctx) }) }()
	<-log
	silent, err := node.DialContext(t.Context(), "tcp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	body := make(chan string)
	go func() { body <- get(t, node.DialContext, s.Address) }()
	<-arrived
	cancel()
	close(proceed)
	if got := <-body; got != "hello" {
		t.Errorf("the last answer is %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection is open")
	}
	again, err := node.Listen("tcp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// pipes is a listener in memory, whose connections follow the clock of a test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestLimits: what clients cannot do to a server.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		write  time.Duration
		client func(net.Conn)
		want   time.Duration // after which the connection is closed
	}{
		{"no request", 0, func(net.Conn) {}, readHeaderTimeout},
		{"half a header", 0, func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n") }, readHeaderTimeout},
		{"half a body", 0, func(c net.Conn) { io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab") }, readTimeout},
		{"answer not read", 0, func(c net.Conn) { io.WriteString(c, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n") }, DefaultWriteTimeout},
		{"answer not read, longer timeout", time.Minute, func(c net.Conn) { io.WriteString(c, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n") }, time.Minute},
		{"no second request", 0, func(c net.Conn) {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if r, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				io.Copy(io.Discard, r.Body)
			}
		}, idleTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					if r.URL.Path == "/big" {
						w.Write(make([]byte, 1<<20))
					}
				})
				server := NewHTTP(handler, c.write, slog.New(slog.DiscardHandler))
				closed := make(chan time.Duration, 1)
				start := time.Now()
				server.ConnState = func(_ net.Conn, s http.ConnState) {
					if s == http.StateClosed {
						closed <- time.Since(start)
					}
				}
				l := make(pipes)
				go server.Serve(l)
				ours, theirs := net.Pipe()
				defer ours.Close()
				l <- theirs
				c.client(ours)
				go func() {
					if !strings.HasPrefix(c.name, "answer not read") {
						io.Copy(io.Discard, ours) // an error of the server
					}
				}()
				if after := <-closed; after < c.want || after > c.want+time.Second {
					t.Errorf("closed after %s, want %s", after, c.want)
				}
				close(l)
			})
		})
	}
}

// TestLongHeader: no client can make a server hold much.
func TestLongHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := NewHTTP(hello, 0, slog.New(slog.DiscardHandler))
		l := make(pipes)
		go server.Serve(l)
		ours, theirs := net.Pipe()
		defer ours.Close()
		l <- theirs
		go io.WriteString(ours, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 1<<20))
		r, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %s", r.Status)
		}
		io.Copy(io.Discard, ours) // until the server has closed it
		close(l)
	})
}
