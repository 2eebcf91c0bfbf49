// Package scale measures what the API server pays for many service proxies: one
// process sends the requests of a proxy over thousands of connections.
package scale

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }
