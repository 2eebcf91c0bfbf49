package serve

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// faulty is an address of which opening and accepting fail as often as configured.
type faulty struct {
	start        time.Time
	open, accept []error
	opened       []time.Duration // moments
	isOpen       int             // sockets at this moment
	log          strings.Builder
}

type faultySocket struct {
	*faulty
	closed chan struct{}
}

func next(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (f *faulty) Open() (net.Listener, error) {
	if err := next(&f.open); err != nil {
		return nil, err
	}
	f.opened = append(f.opened, time.Since(f.start))
	f.isOpen++
	return faultySocket{f, make(chan struct{})}, nil
}

func (s faultySocket) Accept() (net.Conn, error) {
	if err := next(&s.accept); err != nil {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	select {
	case <-s.closed:
		return nil, net.ErrClosed
	default:
		c, _ := net.Pipe()
		return c, nil
	}
}

func (s faultySocket) Addr() net.Addr { return &net.TCPAddr{} }

func (s faultySocket) Close() error {
	select {
	case <-s.closed:
		return net.ErrClosed
	default:
		s.isOpen--
		close(s.closed)
		return nil
	}
}

func (f *faulty) logged(t *testing.T, want int, text string) {
	t.Helper()
	if n := strings.Count(f.log.String(), text); n != want {
		t.Errorf("%d lines of the log hold %q, want %d:\n%s", n, text, want, f.log.String())
	}
}

// TestAcceptFails: 10.13. Whatever accept(2) says, the next connection is
// accepted, after times that grow; the log has one line for it.
func TestAcceptFails(t *testing.T) {
	const ms = time.Millisecond
	full, broken, taken := syscall.ENOBUFS, syscall.EINVAL, os.NewSyscallError("bind", syscall.EADDRINUSE)
	for _, c := range []struct {
		name         string
		open, accept []error
		opened       []time.Duration
		lines        int
	}{
		{"once", nil, []error{full}, []time.Duration{0, 0}, 1},
		{"several times", nil, []error{full, full, full, full}, []time.Duration{0, 0, 100 * ms, 300 * ms, 700 * ms}, 1},
		{"for two reasons", nil, []error{full, broken}, []time.Duration{0, 0, 100 * ms}, 2},
		{"and the address is taken", []error{nil, taken, taken}, []error{full}, []time.Duration{0, 10 * time.Second}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{start: time.Now(), open: c.open, accept: c.accept}
				l, err := Listen(f, slog.New(slog.NewTextHandler(&f.log, nil)))
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if _, err := l.Accept(); err != nil {
						t.Fatal(err)
					}
				}
				if !slices.Equal(f.opened, c.opened) || f.isOpen != 1 {
					t.Errorf("opened at %v, want %v; %d sockets are open", f.opened, c.opened, f.isOpen)
				}
				f.logged(t, c.lines, "ERROR")
				f.logged(t, 1, "connections are accepted again")
				l.Close()
				if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || f.isOpen != 0 {
					t.Errorf("after Close: %v, %d sockets are open", err, f.isOpen)
				}
			})
		})
	}
}

// TestAcceptPauses grows the time between attempts to 5 s and no further.
func TestAcceptPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{start: time.Now(), accept: slices.Repeat([]error{syscall.ENOMEM}, 20)}
		l, err := Listen(f, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		n := len(f.opened)
		if last := f.opened[n-1] - f.opened[n-2]; n != 21 || last != retryPeriod {
			t.Errorf("%d sockets, the last one %v after the one before", n, last)
		}
	})
}

// TestAcceptTemporary leaves to http.Server what it passes by itself: without file
// descriptors another socket could not be had.
func TestAcceptTemporary(t *testing.T) {
	f := &faulty{start: time.Now(), accept: []error{syscall.EMFILE, syscall.ENFILE}}
	l, err := Listen(f, slog.New(slog.NewTextHandler(&f.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{syscall.EMFILE, syscall.ENFILE, nil} {
		if _, err := l.Accept(); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	if len(f.opened) != 1 || f.log.Len() > 0 {
		t.Errorf("%d sockets were opened; log %s", len(f.opened), f.log.String())
	}
}

// TestCloseWhileReopening ends a Listener that waits for its address.
func TestCloseWhileReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{start: time.Now(), open: append([]error{nil}, slices.Repeat([]error{error(syscall.EADDRINUSE)}, 5)...), accept: []error{syscall.ENOBUFS}}
		l, err := Listen(f, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(7*time.Second, func() { l.Close() })
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || time.Since(f.start) != 7*time.Second || f.isOpen > 0 {
			t.Errorf("ended after %v with %v, %d sockets are open", time.Since(f.start), err, f.isOpen)
		}
	})
}

// TestHardFailLater: 12.55. An address that cannot be had again is an error like
// one that cannot be had at first.
func TestHardFailLater(t *testing.T) {
	f := &faulty{open: []error{nil, syscall.EADDRINUSE}, accept: []error{syscall.ENOBUFS}}
	l, err := Listen(f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.hardFail = true
	if _, err := l.Accept(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error %v", err)
	}
}

// opener is an [Opener] of a test.
type opener func() (net.Listener, error)

func (o opener) Open() (net.Listener, error) { return o() }

// TestBrokenSocket breaks the socket of a server that runs: it goes on, and so do
// the connections that it has.
func TestBrokenSocket(t *testing.T) {
	var sockets []*net.TCPListener
	log := make(lines, 10)
	l, err := Listen(opener(func() (net.Listener, error) {
		address := "127.0.0.1:0"
		if len(sockets) > 0 {
			address = sockets[0].Addr().String()
		}
		s, err := net.Listen("tcp", address)
		if err == nil {
			sockets = append(sockets, s.(*net.TCPListener))
		}
		return s, err
	}), log.log())
	if err != nil {
		t.Fatal(err)
	}
	server := NewHTTP(hello, 0, log.log())
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	old, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	get(t, nil, l.Addr().String()) // now the connection before has been accepted
	breakSocket(t, sockets[0])
	if line := <-log; !strings.Contains(line, "cannot accept connections") {
		t.Errorf("log says %s", line)
	}
	// The line comes before the socket is there again.
	for open := false; !open; {
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			open = true
			c.Close()
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	if body := get(t, nil, l.Addr().String()); body != "hello" {
		t.Errorf("answers %q", body)
	}
	io.WriteString(old, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(old); err != nil || !strings.HasSuffix(string(answer), "hello") {
		t.Errorf("the connection from before: %q, %v", answer, err)
	}
	server.Close()
	<-ended
}

// breakSocket makes accept(2) fail, as a socket does that was destroyed.
func breakSocket(t *testing.T, l *net.TCPListener) {
	t.Helper()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Shutdown(int(fd), syscall.SHUT_RD) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}
