package splice

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
)

// Accept hands each client to serve, which must not wait, until the listener is closed. It calls
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
			serve(client)
		}
	}
}
