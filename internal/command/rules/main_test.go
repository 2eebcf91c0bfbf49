package rules

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var program = commandline.Of(RenderCommand, DiffCommand, ApplyCommand)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }
