package tcpproxy

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	// minPause and maxPause bound the pause after a failed accept, for example without
	// a free file descriptor.
	minPause = 5 * time.Millisecond
	maxPause = time.Second
	// FirstRetry is the pause before a port that could not be opened is tried again. It
	// doubles up to lastRetry.
	FirstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Open calls open at each wake, and again after pauses while it has not opened all ports, until ctx
// ends. The first pause is first.
func Open(ctx context.Context, wake <-chan struct{}, first time.Duration, open func() bool) {
	var retry <-chan time.Time
	wait := first
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
			wait = first
		case <-retry:
			wait = min(2*wait, lastRetry)
		}
		retry = nil
		if !open() {
			retry = time.After(wait)
		}
	}
}

// Accept hands each client to serve, which must not wait, until the listener is closed. The kernel
// resets a client if the process ends. It calls
// failed for each accept that fails, and then waits, shorter if ctx ends.
func Accept(ctx context.Context, l *net.TCPListener, failed func(), serve func(*net.TCPConn)) {
	pause := minPause
	for {
		client, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			failed()
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, maxPause)
		default:
			pause = minPause
			resetAtExit(client)
			serve(client)
		}
	}
}
