// Command programs builds the programs of the end-to-end tests into a directory, which
// E2E_PROGRAMS names for the tests: "make e2e" builds them once for all packages.
package main

import (
	"fmt"
	"os"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: programs DIRECTORY")
		os.Exit(2)
	}
	if err := testbed.Build(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
