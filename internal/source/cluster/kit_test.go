package cluster

import "github.com/nftproxy/nftproxy/internal/testkit/sourcetest"

var check = sourcetest.Check
