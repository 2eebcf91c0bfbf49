package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// addressed is a connection of a client at an address.
type addressed struct {
	net.Conn
	client string
	closed bool
}

func (c *addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.client), 1))
}

func (c *addressed) Close() error {
	c.closed = true
	return nil
}

// TestLimit: whose connections are closed when there are too many.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name    string
		max     int
		clients []string // one connection each, in this order
		closed  []int
	}{
		{"room for all", 3, []string{"10.0.0.1", "10.0.0.1", "10.0.0.1"}, nil},
		{"one client has too many", 3, []string{"10.0.0.9", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"}, []int{1, 2}},
		{"the one that comes is not the one that has too many", 3, []string{"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"}, []int{0}},
		{"all have as many", 2, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, []int{0}},
		{"one client with many IPv6 addresses", 3, []string{"fd00::9:0:0:0:1", "fd00::1", "fd00::2", "fd00::3"}, []int{1}},
		{"one client in both notations", 2, []string{"10.0.0.9", "10.0.0.1", "::ffff:10.0.0.1"}, []int{1}},
		{"link-local addresses of several links", 2, []string{"fe80::1%1", "fd00::1", "fe80::1%2"}, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := NewLimit(c.max)
			source := make(pipes)
			l := limit.Listener(source)
			var all []*addressed
			for _, client := range c.clients {
				conn := &addressed{client: client}
				all = append(all, conn)
				go func() { source <- conn }()
				if _, err := l.Accept(); err != nil {
					t.Fatal(err)
				}
			}
			for i, conn := range all {
				if want := slices.Contains(c.closed, i); conn.closed != want {
					t.Errorf("connection %d of %s: closed %t", i, conn.client, conn.closed)
				}
			}
		})
	}
}

// TestLimitCounts: a connection that is closed makes room for another, however
// often it is closed.
func TestLimitCounts(t *testing.T) {
	limit := NewLimit(2)
	source := make(pipes)
	l := limit.Listener(source)
	accept := func() (*addressed, net.Conn) {
		conn := &addressed{client: "10.0.0.1"}
		go func() { source <- conn }()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn, c
	}
	stays, _ := accept()
	for range 10 {
		_, c := accept()
		c.Close()
		c.Close()
	}
	if stays.closed {
		t.Error("a connection was closed while there was room")
	}
	if limit.open.Len() != 1 {
		t.Errorf("%d connections count, 1 is open", limit.open.Len())
	}
}

// dialFrom returns a connection from one of the loopback addresses of a node.
func dialFrom(t *testing.T, node *netlab.Host, client, server string) (c net.Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}, Timeout: await.Patience}
	err := node.Do(func() (err error) { c, err = d.DialContext(t.Context(), "tcp", server); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestFlood: a client that opens connections without end, and leaves some of
// them in the middle of a request, keeps no other client from an answer, nor from
// the connection that he has; and he cannot use up file descriptors.
func TestFlood(t *testing.T) {
	const flooder, other, address = "127.0.0.9", "127.0.0.1", "127.0.0.1:10256"
	node := netlab.TestLab(t, 0).Node // where no other program takes the port
	log := make(lines, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	s := &Server{Address: address, Site: hello, Log: log.log()}
	go func() { done <- node.Do(func() error { return s.Run(ctx) }) }()
	<-log
	keeps := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dialFrom(t, node, other, address), nil },
	}}
	ask := func() {
		t.Helper()
		r, err := keeps.Get("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "hello" {
			t.Fatalf("answer %q, %v", body, err)
		}
	}
	ask()
	const flood = 3 * Connections
	all := make([]net.Conn, flood)
	for i := range all {
		all[i] = dialFrom(t, node, flooder, address)
		if i%2 == 0 {
			io.WriteString(all[i], "GET / HTTP/1.1\r\nHost: a\r\nX: ")
		}
	}
	ask() // on the connection from before
	get(t, func(context.Context, string, string) (net.Conn, error) { return dialFrom(t, node, other, address), nil }, address)
	// The server has accepted all by now, and has closed those beyond the limit.
	if n := node.TestEstablished(t, 10256); n > Connections {
		t.Errorf("%d connections are open, want %d at most", n, Connections)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
