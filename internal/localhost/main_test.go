package localhost

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }
