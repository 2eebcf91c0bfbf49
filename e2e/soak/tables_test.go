package soak

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Idle lanes and bound clients in a listing are no difference between rules.
func TestTablesWithoutMeaning(t *testing.T) {
	const listing = `table ip nftproxy {
	map local-affinity {
		type ipv4_addr . inet_proto . inet_service . ipv4_addr : ipv4_addr . inet_service
		%s
	}
	map services {
		type ipv4_addr . inet_proto . inet_service : classid
		elements = { 10.96.0.1 . tcp . 80 comment "default/web:http" : 2:207 }
	}
	map lanes {
		type classid : verdict
		elements = { 2:207 : goto local-sticky-rr-2-7%s }
	}
	map endpoints {
		elements = { 10.96.0.1 . tcp . 80 . 0 : 10.0.0.1 . 8080,
			     10.96.0.1 . tcp . 80 . 1 : 10.0.0.2 . 8080 }
	}
	chain rr-2-7 {
		dnat ip to ip daddr . meta l4proto . th dport . numgen inc mod 2 map @endpoints
	}
	chain local-sticky-rr-2-7 {
		dnat ip to ip daddr . meta l4proto . th dport . ip saddr map @local-affinity
		goto rr-2-7
	}
`
	const idle = `
	chain %[1]s {
		goto rr-2-7
	}
`
	want := readTables(fmt.Sprintf(listing, "", "") + "}\n")
	if want.idle != 0 || len(want.objects) != 6 {
		t.Fatalf("got %d idle lanes and %d objects, want 0 and 6", want.idle, len(want.objects))
	}
	got := readTables(fmt.Sprintf(listing, "elements = { 10.96.0.1 . tcp . 80 . 192.0.2.1 expires 1h : 10.0.0.1 . 8080 }",
		", 3:101 : goto sticky-rr-3-1") +
		fmt.Sprintf(idle, "sticky-rr-3-1") + fmt.Sprintf(idle, "local-sticky-rr-3-1") + fmt.Sprintf(idle, "hash-4-outside") + "}\n")
	if diff := cmp.Diff(want.lines(), got.lines()); diff != "" || got.idle != 3 {
		t.Errorf("%d idle lanes, want 3; lines (-want, +got):\n%s", got.idle, diff)
	}
}
