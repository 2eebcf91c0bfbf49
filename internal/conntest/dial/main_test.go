package dial

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }
