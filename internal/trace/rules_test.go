package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseListing reads what nft prints about a chain.
func TestParseListing(t *testing.T) {
	const listing = `table inet fw { # handle 7
	set s { # handle 3
		type ipv4_addr
	}

	chain forward { # handle 1
		type filter hook forward priority filter; policy drop;
		ct state established,related accept # handle 2
		ip daddr @s log prefix " # handle 9 " drop # handle 5
	}
}
`
	want := map[uint64]string{2: "ct state established,related accept", 5: `ip daddr @s log prefix " # handle 9 " drop`}
	if diff := cmp.Diff(want, parseListing(listing)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestPlainNames: no name of a chain becomes an option or a part of a command.
func TestPlainNames(t *testing.T) {
	for name, want := range map[string]bool{"FORWARD": true, "cali-fw_x.1/2": true, "": false, "-F": false, "a; flush ruleset": false, "a b": false, `"`: false} {
		if got := isPlain(name); got != want {
			t.Errorf("%q is plain: %t, want %t", name, got, want)
		}
	}
}
