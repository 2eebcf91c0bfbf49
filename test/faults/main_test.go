// Package faults holds tests of the unmodified program on a kernel that fails:
// strace makes its system calls fail, or kills it at one, while clients dial.
// Faults that can be produced for real are real.
package faults

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nftproxy/nftproxy/test/program"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("strace"); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need strace:", err)
		os.Exit(1)
	}
	os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run))
}
