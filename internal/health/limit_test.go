package health

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestFlood: all health checks of Services have one limit of connections
// together. A client who has them all open keeps no other one from an answer,
// about no Service.
func TestFlood(t *testing.T) {
	f := newFixture(t)
	second := at(31001, 2, -1)
	second.Service.Name = "second"
	f.update(at(31000, 1, -1), second)
	var all []net.Conn
	for i := range Connections + 100 {
		c, err := dial(f.lab.Client, f.lab.Node.IPv4, 31000+uint16(i%2))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nX: ")
		all = append(all, c)
	}
	for port, want := range map[uint16]string{31000: "200 weight 1", 31001: "200 weight 2"} {
		if got := brief(t, f.lab.Node, f.lab.Node.IPv4, port); got != want {
			t.Errorf("port %d answers %q to another client, want %q", port, got, want)
		}
	}
	var open atomic.Int64
	var reading sync.WaitGroup
	soon := time.Now().Add(time.Second)
	for _, c := range all {
		reading.Go(func() { // together: past the deadline a closed one times out, too
			c.SetReadDeadline(soon)
			_, err := c.Read(make([]byte, 1))
			if e, ok := err.(net.Error); ok && e.Timeout() {
				open.Add(1)
			}
		})
	}
	reading.Wait()
	if n := open.Load(); n > Connections {
		t.Errorf("%d connections of one client are open", n)
	}
}
