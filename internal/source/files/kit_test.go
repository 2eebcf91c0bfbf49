package files

import "github.com/nftproxy/nftproxy/internal/testkit/sourcetest"

var check = sourcetest.Check
