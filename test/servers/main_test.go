// Package servers tests that real servers read the header of the PROXY protocol that a relay sends.
package servers

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
