// Package names tests servers that are known by names of DNS, with a real DNS server: dnsmasq
// in a namespace of its own.
package names

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
