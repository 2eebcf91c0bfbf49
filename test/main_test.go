// Package test holds black-box tests: the real binary, the kernel of this
// machine and real packets, in a laboratory of network namespaces.
package test

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/test/program"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(program.Run(&binary, "../cmd/nftproxy", m.Run))
}
