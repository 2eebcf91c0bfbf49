package model

import (
	"net/netip"
	"testing"
)

// TestNoLimits: a kernel that cannot limit connections serves Services without their
// limits, and says so (4.93).
func TestNoLimits(t *testing.T) {
	limits := Limits{Connections: 7}
	s := &Service{Name: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports: []ServicePort{{Protocol: TCP, Port: 80}}, Extras: &Extras{Limits: limits}}
	for _, lacks := range []bool{false, true} {
		r := Resolve(&Snapshot{Services: []*Service{s}}, Config{NoLimits: lacks})
		if limited := r.Routes[0].Service.Extra().Limits == limits; limited == lacks {
			t.Errorf("without the modules: %t, and limited: %t", lacks, limited)
		}
		noticed := false
		for _, n := range r.Notices {
			noticed = noticed || n.Reason == NoLimits
		}
		if noticed != lacks {
			t.Errorf("without the modules: %t, and notices %v", lacks, r.Notices)
		}
	}
	if s.Extras.Limits != limits {
		t.Error("the Service was changed")
	}
}
