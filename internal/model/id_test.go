package model

import (
	"net/netip"
	"testing"
)

// TestFrontendIDs: frontends that can be served at the same time have different
// identities, and a range that grows keeps its own.
func TestFrontendIDs(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	one, short, long := Frontend{a, TCP, 80, 0}, Frontend{a, TCP, 80, 90}, Frontend{a, TCP, 80, AllPorts}
	if one.ID() == short.ID() {
		t.Error("a port has the identity of a range that begins there")
	}
	if short.ID() != long.ID() {
		t.Error("the last port of a range changes its identity")
	}
}
