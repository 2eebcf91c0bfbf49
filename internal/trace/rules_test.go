package trace

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestTextsOfIPTables: each rule has its own text, also where the handle of one is the number of another one.
func TestTextsOfIPTables(t *testing.T) {
	ns := netlab.TestNamespace(t)
	for i := range 9 {
		if err := ns.Run(exec.Command("iptables-nft", "-A", "FORWARD", "-p", "tcp", "--dport", fmt.Sprint(8001+i), "-j", "ACCEPT")); err != nil {
			t.Fatal(err)
		}
	}
	err := ns.Do(func() error {
		r, err := NewRules(nil)
		if err != nil {
			return err
		}
		rules := r.read(Place{Family(nftables.TableFamilyIPv4), "filter", "FORWARD"})
		if len(rules) != 9 {
			t.Errorf("got %d rules", len(rules))
		}
		for i, rule := range rules {
			if port := fmt.Sprintf("--dport %d ", 8001+i); !strings.Contains(rule.text, port) {
				t.Errorf("rule %d with handle %d is %q, and has %s", rule.number, rule.handle, rule.text, port)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

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
