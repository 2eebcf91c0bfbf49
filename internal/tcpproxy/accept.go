package tcpproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// minPause and maxPause bound the pause after a failed accept, for example without
	// a free file descriptor.
	minPause = 5 * time.Millisecond
	maxPause = time.Second
	// firstRetry and lastRetry bound the pause before ports that could not be opened are tried again.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Listen listens at an address. Multipath TCP, Go's default, takes memory that few clients have a use for. keepAlive is
// that of [net.ListenConfig].
func Listen(at netip.AddrPort, keepAlive time.Duration) (*net.TCPListener, error) {
	c := net.ListenConfig{KeepAlive: keepAlive}
	c.SetMultipathTCP(false)
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	l, err := c.Listen(context.Background(), network, at.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// Accept serves clients in the background until the listener is closed. The kernel resets them if the process ends.
// frontendOf returns which frontend a client has dialled; false: none.
func (p *Proxy) Accept(ctx context.Context, l *net.TCPListener, frontendOf func(*net.TCPConn) (model.Frontend, bool)) {
	p.active.Go(func() { p.accept(ctx, l, frontendOf) })
}

func (p *Proxy) accept(ctx context.Context, l *net.TCPListener, frontendOf func(*net.TCPConn) (model.Frontend, bool)) {
	pause := minPause
	for {
		client, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			p.counts.add(AcceptFailed)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, maxPause)
		default:
			pause = minPause
			resetAtExit(client)
			p.counts.open.Add(1)
			p.active.Go(func() {
				defer p.counts.open.Add(-1)
				if at, ok := frontendOf(client); ok {
					p.Serve(ctx, at, client)
				} else {
					p.refuse(client, NotRelayed)
				}
			})
		}
	}
}

// refuse resets the connection of a client.
func (p *Proxy) refuse(client *net.TCPConn, why Result) {
	p.counts.add(why)
	Reset(client)
}
