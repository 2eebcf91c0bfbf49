package compare

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }
