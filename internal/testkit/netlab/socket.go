package netlab

import (
	"context"
	"net"
	"time"
)

// timeout is how long a laboratory without load waits for what must come. It
// is generous, since a test that passes never waits for it.
const timeout = 5 * time.Second

// DialContext dials from inside the namespace. The address is a literal one:
// names are not resolved there.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dial(ctx, net.Dialer{Timeout: timeout}, network, address)
}

func (n *Namespace) dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen listens for connections inside the namespace.
func (n *Namespace) Listen(network, address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// ListenPacket listens for datagrams inside the namespace.
func (n *Namespace) ListenPacket(network, address string) (net.PacketConn, error) {
	var c net.PacketConn
	err := n.Do(func() (err error) {
		c, err = net.ListenPacket(network, address)
		return err
	})
	return c, err
}
