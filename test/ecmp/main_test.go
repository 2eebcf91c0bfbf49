// Package ecmp tests several nodes that serve the same addresses behind routers that
// spread flows over them (equal-cost multipath), as docs/ecmp.md describes it. Static
// routes stand for those of a routing daemon, except in the tests of such daemons.
package ecmp

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/test/program"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run))
}
