package relay

import (
	"net"
	"testing"
)

// TestHops: 4.64. A connection to a server has one hop less than the client had left, in both
// families, and the usual ones if the client is near its limit of 255.
func TestHops(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // as the port of the relay
		open, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		l := open.(*net.TCPListener)
		saveRequests(l)
		for left, want := range map[uint8]uint8{0: usualHops, 2: 1, 40: 39, usualHops: usualHops - 1, 255: usualHops} {
			c, err := dial(t.Context(), l.Addr().(*net.TCPAddr).AddrPort(), left)
			if err != nil {
				t.Fatal(err)
			}
			server, err := l.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			if got := hops(server); got != want {
				t.Errorf("%s: %d hops arrive for a client with %d, want %d", address, got, left, want)
			}
			c.Close()
			server.Close()
		}
	}
}
