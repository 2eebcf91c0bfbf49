package health

import (
	"io"
	"testing"
)

// TestFlood: all health checks of Services have one limit of connections
// together. A client who has them all open keeps no other one from an answer,
// about no Service.
func TestFlood(t *testing.T) {
	f := newFixture(t)
	second := at(31001, 2, -1)
	second.Service.Name = "second"
	f.update(at(31000, 1, -1), second)
	for i := range Connections + 100 {
		c, err := dial(f.lab.Client, f.lab.Node.IPv4, 31000+uint16(i%2))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nX: ")
	}
	for port, want := range map[uint16]string{31000: "200 weight 1", 31001: "200 weight 2"} {
		if got := brief(t, f.lab.Node, f.lab.Node.IPv4, port); got != want {
			t.Errorf("port %d answers %q to another client, want %q", port, got, want)
		}
	}
	// Both ports have accepted all by now, and have closed those beyond the limit.
	if n := f.lab.Node.TestEstablished(t, 31000, 31001); n > Connections {
		t.Errorf("%d connections are open, want %d at most", n, Connections)
	}
}
