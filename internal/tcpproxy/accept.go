package tcpproxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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

// Sockets opens ports and connections.
type Sockets interface {
	// Listen listens at an address. keepAlive is that of [net.ListenConfig].
	Listen(at netip.AddrPort, keepAlive time.Duration) (*net.TCPListener, error)
	// Dial connects to a server. hops is how many hops (TTL, hop limit) the packets of the connection have; 0: as many
	// as the machine gives.
	Dial(ctx context.Context, to netip.AddrPort, hops uint8) (*net.TCPConn, error)
}

// Kernel opens sockets in the network namespace of the process.
type Kernel struct{}

// Listen implements [Sockets]. Multipath TCP, Go's default, takes memory that few clients have a use for.
func (Kernel) Listen(at netip.AddrPort, keepAlive time.Duration) (*net.TCPListener, error) {
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

func (p *Proxy) refuse(client *net.TCPConn, why Result) {
	p.counts.add(why)
	Reset(client)
}

func (Kernel) Dial(ctx context.Context, to netip.AddrPort, hops uint8) (*net.TCPConn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	if hops > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			level, option := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
			if to.Addr().Is4() {
				level, option = unix.IPPROTO_IP, unix.IP_TTL
			}
			failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, int(hops)) })
			return cmp.Or(failed, err)
		}
	}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
