// Package simulation compares the models of internal/testkit/simulation with the kernel.
package simulation

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }
