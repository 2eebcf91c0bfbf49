package tcpproxy

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestAccept: an accept that fails is counted, clients behind it are served, and a closed
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
	p, served, ended := New(Config{}), make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		p.accept(t.Context(), l, func(c *net.TCPConn) (at model.Frontend, ok bool) {
			served <- c.RemoteAddr().String()
			return at, false
		})
	}()
	for p.Counts(AcceptFailed).Total[AcceptFailed] == 0 {
		runtime.Gosched()
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := <-served; got != c.LocalAddr().String() {
			t.Errorf("serves %s, want %s", got, c.LocalAddr())
		}
	}
	l.Close()
	<-ended
	p.active.Wait()
	if c := p.Counts(NotRelayed); c.Total[NotRelayed] != 2 || c.Connections != 0 {
		t.Errorf("%+v", c)
	}
}
