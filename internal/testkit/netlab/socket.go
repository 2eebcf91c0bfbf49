package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// timeout is how long a laboratory waits for what must come, on a busy machine, too. It
// is generous, since a test that passes never waits for it.
const timeout = time.Minute

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

// TestEstablished returns how many sockets of the namespace have a TCP connection on these ports of theirs.
func (n *Namespace) TestEstablished(t Test, ports ...uint16) (count int) {
	t.Helper()
	var tables []byte
	err := n.Do(func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			table, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			tables = append(tables, table...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(tables)) {
		// Number, own address, other address, state, and more.
		f := strings.Fields(line)
		if _, hex, ok := strings.Cut(f[1], ":"); ok && f[3] == "01" {
			port, err := strconv.ParseUint(hex, 16, 16)
			if err == nil && slices.Contains(ports, uint16(port)) {
				count++
			}
		}
	}
	return count
}

// TestSYN sends the first packet of a TCP connection, and does not wait for an answer: on a busy machine,
// the timeout of a dialer can pass before it sends anything.
func (n *Namespace) TestSYN(t Test, to netip.AddrPort) {
	t.Helper()
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	err := n.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Connect(fd, socketAddress(to)), unix.Close(fd))
	})
	if !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(fmt.Sprintf("send the first packet of a connection to %s: %v", to, err))
	}
}
