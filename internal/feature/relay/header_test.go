package relay

import (
	"bytes"
	"net/netip"
	"testing"
)

// TestHeader: 4.98. The bytes are as the specification shows them (2.2 of proxy-protocol.txt).
func TestHeader(t *testing.T) {
	start := []byte{0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21}
	four := append(bytes.Clone(start), 0x11, 0, 12, 192, 0, 2, 7, 203, 0, 113, 10, 0xc0, 0x01, 0x01, 0xbb)
	if got := header(netip.MustParseAddrPort("192.0.2.7:49153"), netip.MustParseAddrPort("203.0.113.10:443")); !bytes.Equal(got, four) {
		t.Errorf("IPv4: %x, want %x", got, four)
	}
	from, to := netip.MustParseAddrPort("[2001:db8::7]:49153"), netip.MustParseAddrPort("[2001:db8::10]:443")
	six := append(bytes.Clone(start), 0x21, 0, 36)
	six = append(append(six, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	six = append(six, 0xc0, 0x01, 0x01, 0xbb)
	if got := header(from, to); !bytes.Equal(got, six) {
		t.Errorf("IPv6: %x, want %x", got, six)
	}
}
