package machine_test

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// waiting in the environment makes the test binary a process that waits.
const waiting = "NFTPROXY_TEST_WAITING"

func TestMain(m *testing.M) {
	if os.Getenv(waiting) != "" {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(netlab.Run(m.Run))
}
