package tree

import (
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/bench/layout"
	"github.com/nftproxy/nftproxy/test/program"
)

var binary string

func TestMain(m *testing.M) { os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run)) }

// TestLayouts: the tree and the program that is built from it have the same layout, and
// other rules have another one.
func TestLayouts(t *testing.T) {
	tree, err := Layout()
	if err != nil {
		t.Fatal(err)
	}
	built, err := layout.Of(binary)
	if err != nil {
		t.Fatal(err)
	}
	if tree != built || len(tree) != 8 {
		t.Errorf("the tree has layout %q, the program %q", tree, built)
	}
	if other := layout.Digest([]byte("table ip nftproxy {}")); other == tree {
		t.Errorf("other rules have layout %q, too", other)
	}
	if _, err := layout.Of("/bin/false"); err == nil || !strings.Contains(err.Error(), "/bin/false") {
		t.Errorf("a program that fails: %v", err)
	}
}

// TestObjects: what the benchmarks measure is among the rules.
func TestObjects(t *testing.T) {
	for _, kind := range []string{"udp", "nodePort", "sessionAffinity", "loadBalancerSourceRanges", "externalTrafficPolicy", "max-connections",
		"connection-rate", "denied-sources", "nftproxy.dev/ports", "scheduler", "IPv6"} {
		if !strings.Contains(layout.Objects, kind) {
			t.Errorf("no Service has %s", kind)
		}
	}
}
