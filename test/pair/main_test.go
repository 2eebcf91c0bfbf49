// Package pair tests two machines beside each other, as docs/high-availability.md
// describes them: nftproxy, keepalived and conntrackd with the files of deploy/pair.
package pair

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
