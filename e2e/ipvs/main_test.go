package ipvs

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/test/debian"
)

// The virtual machine runs the same test program.
const (
	guestCommand  = "guest"  // its first process
	insideCommand = "inside" // what that starts
)

func TestMain(m *testing.M) {
	switch args := os.Args[1:]; {
	case slices.Equal(args, []string{guestCommand}):
		debian.Init(insideCommand)
	case slices.Equal(args, []string{insideCommand}):
		if err := inside(); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
	default:
		os.Exit(testbed.Run(m))
	}
}
