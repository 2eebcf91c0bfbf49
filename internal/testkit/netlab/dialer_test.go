package netlab

import (
	"net/netip"
	"testing"
	"time"
)

// TestDialer: only what waits for an answer has a time limit.
func TestDialer(t *testing.T) {
	h, to := &Host{}, netip.MustParseAddrPort("192.0.2.1:80")
	if d := h.dialer(20000, "udp", to, time.Second); d.Timeout != 0 || d.LocalAddr.String() != ":20000" {
		t.Errorf("udp: timeout %v from %v, want none from :20000", d.Timeout, d.LocalAddr)
	}
	if d := h.dialer(20000, "tcp", to, time.Second); d.Timeout != time.Second || d.LocalAddr.String() != ":20000" {
		t.Errorf("tcp: timeout %v from %v, want 1s from :20000", d.Timeout, d.LocalAddr)
	}
}
