package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Echo is a server that answers every line with its name, its port and the
// address that it sees the client at, over TCP and UDP in both families.
type Echo struct {
	name    string
	port    uint16
	closers []io.Closer
}

// Echo starts an echo server under the name of the host. It listens on the
// addresses of the host, not on the wildcard, so that its datagrams leave from
// the address that they were sent to.
func (h *Host) Echo(port uint16) (*Echo, error) {
	e := &Echo{name: h.Name, port: port}
	for _, f := range model.Families {
		if err := e.listen(h, netip.AddrPortFrom(h.Address(f), port).String()); err != nil {
			return nil, errors.Join(fmt.Errorf("start echo server on %s: %w", h.Name, err), e.Close())
		}
	}
	return e, nil
}

// Close stops listening. Connections that are open are served on.
func (e *Echo) Close() error {
	var errs []error
	for _, c := range e.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (e *Echo) listen(h *Host, address string) error {
	l, err := h.Listen("tcp", address)
	if err != nil {
		return err
	}
	e.closers = append(e.closers, l)
	go e.serveTCP(l)
	c, err := h.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	e.closers = append(e.closers, c)
	go e.serveUDP(c)
	return nil
}

func (e *Echo) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := io.WriteString(c, e.answer(c.RemoteAddr())); err != nil {
					return
				}
			}
		}()
	}
}

func (e *Echo) serveUDP(c net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		_, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			// The error of one client must not affect the next one.
			_, _ = c.WriteTo([]byte(e.answer(from)), from)
		}
	}
}

func (e *Echo) answer(client net.Addr) string {
	addr := netip.MustParseAddrPort(client.String()).Addr()
	return fmt.Sprintf("%s %d %s\n", e.name, e.port, addr.Unmap())
}
