package localhost

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func TestMain(m *testing.M) {
	if target := os.Getenv(targetVariable); target != "" { // of a benchmark
		serveTarget(target)
		return
	}
	os.Exit(netlab.Run(m.Run))
}
