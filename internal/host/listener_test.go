package host

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
)

// TestListeners finds the user behind an address, and none behind others.
func TestListeners(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		at := l.Addr().(*net.TCPAddr).AddrPort()
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		asked := []netip.Addr{at.Addr()}
		if at.Addr().IsUnspecified() {
			asked = append(asked, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"))
		}
		for _, a := range asked {
			if got, err := Listeners(netip.AddrPortFrom(a, at.Port())); err != nil || !slices.Equal(got, []int{os.Getuid()}) {
				t.Errorf("%s, asked for %s: %v, %v", at, a, got, err)
			}
		}
		if got, err := Listeners(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), at.Port())); err != nil || (len(got) > 0) != at.Addr().IsUnspecified() {
			t.Errorf("%s, another address: %v, %v", at, got, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if got, err := Listeners(at); err != nil || len(got) > 0 {
			t.Errorf("%s, closed: %v, %v", at, got, err)
		}
	}
}
