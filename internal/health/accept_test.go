package health

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// watchedNetwork reports each listener that a host opens.
type watchedNetwork struct {
	*netlab.Host
	opened chan *net.TCPListener
}

func (w watchedNetwork) Listen(_ context.Context, network, address string) (net.Listener, error) {
	l, err := w.Host.Listen(network, address)
	if err == nil {
		w.opened <- l.(*net.TCPListener)
	}
	return l, err
}

// TestSocketBreaks: 10.13, 10.22. A port on which accepting fails is opened again,
// and the log says so. Its connections stay, and an update closes it like any other.
func TestSocketBreaks(t *testing.T) {
	f := newFixture(t)
	opened := make(chan *net.TCPListener, 10)
	f.ports = watchedNetwork{f.lab.Node, opened}
	f.update(at(31000, 1, -1))
	conn, err := dial(f.lab.Client, f.lab.Node.IPv4, 31000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := connection{conn, bufio.NewReader(conn)}
	for _, n := range []int{1, 2} {
		f.update(at(31000, n, -1))
		if got, err := c.get(); err != nil || got != fmt.Sprint(n) {
			t.Fatalf("%d endpoints: weight %s, %v on the same connection", n, got, err)
		}
		raw, err := (<-opened).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		// accept(2) says EINVAL then, as after ss --kill.
		raw.Control(func(fd uintptr) { err = syscall.Shutdown(int(fd), syscall.SHUT_RD) })
		if err != nil {
			t.Fatal(err)
		}
		again := <-opened
		f.expect(t, "again", 31000, fmt.Sprintf("200 weight %d", n), "refused")
		opened <- again
	}
	if n := strings.Count(f.log.String(), "cannot accept connections"); n != 2 || len(f.failed) > 0 {
		t.Errorf("%d lines of the log, failures %v:\n%s", n, f.failed, f.log.String())
	}
	f.update()
	f.expect(t, "closed", 31000, "refused", "refused")
	if got, err := c.get(); err == nil {
		t.Errorf("a connection to the closed port answers %s", got)
	}
}
