package relay

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/netspace"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// TestHops: 4.64. A connection to a server has one hop less than the client had left, in both
// families, and 64 at most, also on a machine that gives its packets more.
func TestHops(t *testing.T) {
	space, err := netspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	if err := space.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, name := range []string{"ipv4/ip_default_ttl", "ipv6/conf/lo/hop_limit"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("255"), 0); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		for left, want := range map[uint8]uint8{0: 255, 2: 1, 40: 39, 64: 63, 255: 64} {
			var got uint8
			if err := space.Do(func() (err error) { got, err = arriving(t.Context(), address, left); return err }); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s: %d hops arrive for a client with %d, want %d", address, got, left, want)
			}
		}
	}
}

// arriving returns how many hops arrive at a server that a relay connects to.
func arriving(ctx context.Context, address string, left uint8) (uint8, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // as the port of the relay
	open, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	defer open.Close()
	l := open.(*net.TCPListener)
	saveRequests(l)
	c, err := tcpproxy.Kernel{}.Dial(ctx, l.Addr().(*net.TCPAddr).AddrPort(), hopsToServer(left))
	if err != nil {
		return 0, fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	server, err := l.AcceptTCP()
	if err != nil {
		return 0, err
	}
	defer server.Close()
	return hops(server), nil
}
