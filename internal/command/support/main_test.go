package support

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var program = commandline.Of(CheckCommand, BundleCommand)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }
