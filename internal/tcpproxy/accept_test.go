package tcpproxy

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestAccept: an accept that fails is reported, clients behind it are served, and a closed
// listener ends it.
func TestAccept(t *testing.T) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.SetDeadline(time.Now().Add(-time.Hour)); err != nil { // each accept fails
		t.Fatal(err)
	}
	failed, served, ended := make(chan struct{}, 1), make(chan *net.TCPConn), make(chan struct{})
	go func() {
		defer close(ended)
		Accept(t.Context(), l, func() {
			select {
			case failed <- struct{}{}:
			default:
			}
		}, func(c *net.TCPConn) { served <- c })
	}()
	<-failed
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s := <-served
		if s.RemoteAddr().String() != c.LocalAddr().String() {
			t.Errorf("serves %s, want %s", s.RemoteAddr(), c.LocalAddr())
		}
		s.Close()
	}
	l.Close()
	<-ended
}
