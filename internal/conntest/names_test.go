package conntest

import (
	"net/netip"
	"testing"
	"time"
)

// TestNames: 18.25. A name passes if it is resolved to the address of its Service, and to no other one.
func TestNames(t *testing.T) {
	want, other := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11")
	for why, attempt := range map[string]Attempt{
		"": {Outcome: Answered, Addresses: []netip.Addr{want}},
		"cluster-ip.test.svc is resolved to 10.96.0.11":                {Outcome: Answered, Addresses: []netip.Addr{other}},
		"cluster-ip.test.svc is resolved to 10.96.0.10 and 10.96.0.11": {Outcome: Answered, Addresses: []netip.Addr{want, other}},
		"cluster-ip.test.svc is not resolved: no such host":            {Outcome: Failed, Error: "no such host"},
		"cluster-ip.test.svc is not resolved: i/o timeout":             {Outcome: Silent, Error: "i/o timeout"},
	} {
		c := NewName("node-7", "cluster-ip", "cluster-ip.test.svc", []netip.Addr{want})
		d := c.Dial(Answers, time.Second, 0)
		r := c.JudgeDialled(&d, &Dialled{Attempts: []Attempt{attempt}})
		if (r.State == Passed) != (why == "") || why != "" && (len(r.Reasons) != 1 || r.Reasons[0] != why) {
			t.Errorf("%+v: %s, %q, want %q", attempt, r.State, r.Reasons, why)
		}
		if name := r.Name(); name != "cluster-ip, name cluster-ip.test.svc (IPv4) from pod of node-7" || r.Expected.String() != want.String() {
			t.Errorf("%s: expected %s", name, &r.Expected)
		}
	}
}
