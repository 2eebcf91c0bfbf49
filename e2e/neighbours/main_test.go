package neighbours

import (
	"fmt"
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func TestMain(m *testing.M) {
	status := testbed.Run(m)
	if err := saveFindings(os.Getenv("COMPATIBILITY")); err != nil {
		fmt.Fprintf(os.Stderr, "save findings: %v\n", err)
		status = 1
	}
	os.Exit(status)
}
