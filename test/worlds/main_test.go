// Package worlds compares random worlds with the kernel: after each step the diff of the input is
// empty, and real packets go where explain says. Package internal/testkit/worlds draws them.
package worlds

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
