package serve

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// retryPeriod is the pause between attempts to listen (10.13).
	retryPeriod = 5 * time.Second
	// firstRetry is the pause before the second reopening after failures of accept;
	// it doubles with each failure, up to retryPeriod.
	firstRetry = 100 * time.Millisecond
)

// Listener is a listener that survives failures of accept(2): it logs them, and
// listens again. An [http.Server] alone would end, for example after ENOBUFS or
// ENOMEM. Only one goroutine may accept; Close is safe for concurrent use.
type Listener struct {
	from     Opener
	log      *slog.Logger
	hardFail bool // do not retry an unavailable address
	closed   chan struct{}

	mu      sync.Mutex // guards current, and opening against Close
	current net.Listener
}

// Opener opens listeners at one place.
type Opener interface {
	Open() (net.Listener, error)
}

// Network is the part of [net.ListenConfig] that an [Address] needs.
type Network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
}

// Address is an address of a kind of network, such as tcp4.
type Address struct {
	Network       Network
	Kind, Address string
}

// Open implements [Opener].
func (a Address) Open() (net.Listener, error) {
	return a.Network.Listen(context.Background(), a.Kind, a.Address)
}

// Listen opens a listener, and opens it again after failures.
func Listen(from Opener, log *slog.Logger) (*Listener, error) {
	l := newListener(from, log)
	if err := l.replaceListener(); err != nil {
		return nil, err
	}
	return l, nil
}

func newListener(from Opener, log *slog.Logger) *Listener {
	return &Listener{from: from, log: log, closed: make(chan struct{})}
}

// Accept returns the next connection. It returns an error after Close, and errors
// that an [http.Server] retries.
func (l *Listener) Accept() (net.Conn, error) {
	reported := ""
	for wait := time.Duration(0); ; wait = min(max(2*wait, firstRetry), retryPeriod) {
		c, err := l.currentListener().Accept()
		switch {
		case err == nil:
			if reported != "" {
				l.log.Info("connections are accepted again")
			}
			return c, nil
		case l.isClosed():
			return nil, net.ErrClosed
		case isTemporary(err):
			return nil, err
		}
		if text := err.Error(); text != reported {
			l.log.Error("cannot accept connections; reopening the address", "error", err)
			reported = text
		}
		if err := l.retryListen(wait); err != nil {
			return nil, err
		}
	}
}

// isTemporary reports whether an [http.Server] retries accept, for example after
// EMFILE.
func isTemporary(err error) bool {
	e, ok := err.(net.Error)
	//lint:ignore SA1019 http.Server decides by it
	return ok && e.Temporary()
}

// retryListen waits, then retries until it can listen. It returns an error after Close,
// and with hardFail after one attempt.
func (l *Listener) retryListen(wait time.Duration) error {
	for reported := ""; ; wait = retryPeriod {
		select {
		case <-l.closed:
			return net.ErrClosed
		case <-time.After(wait):
		}
		err := l.replaceListener()
		if err == nil || l.hardFail || l.isClosed() {
			return err
		}
		if text := err.Error(); text != reported {
			l.log.Error("server does not listen; free its address or choose another", "error", err, "retried", retryPeriod)
			reported = text
		}
	}
}

func (l *Listener) replaceListener() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return net.ErrClosed
	}
	if l.current != nil {
		l.current.Close()
	}
	next, err := l.from.Open()
	if err == nil {
		l.current = next
	}
	return err
}

func (l *Listener) currentListener() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Close implements [net.Listener]. The address is free when it returns.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return net.ErrClosed
	}
	close(l.closed)
	if l.current == nil {
		return nil
	}
	return l.current.Close()
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return l.currentListener().Addr() }
