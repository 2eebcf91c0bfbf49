package health

import (
	"io"
	"net"
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
	ended := make(chan struct{}, len(all))
	for _, c := range all {
		go func() {
			_, _ = c.Read(make([]byte, 1)) // the server answers none
			ended <- struct{}{}
		}()
	}
	late := time.After(2 * time.Second) // later, the server closes the others, too
	for n := range len(all) - Connections {
		select {
		case <-ended:
		case <-late:
			t.Fatalf("%d connections of one client are open", len(all)-n)
		}
	}
}
