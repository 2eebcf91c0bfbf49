// Package program builds nftproxy for the tests that run it as a whole.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// variable in the environment names a program to test instead of the one built
// here, such as a released one.
const variable = "NFTPROXY"

// Run is for TestMain of such a package: it puts the path of the program into
// binary, runs the tests by [netlab.Run], and returns their exit code.
func Run(binary *string, source string, tests func() int) int {
	dir, err := os.MkdirTemp("", "nftproxy-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make directory for the program:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if *binary = os.Getenv(variable); *binary == "" {
		*binary = filepath.Join(dir, "nftproxy")
		args := slices.Concat([]string{"build"}, buildFlags, []string{"-o", *binary, source})
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build nftproxy: %v\n%s", err, out)
			return 1
		}
		// The process that netlab.Run may start does not build it once more.
		if err := os.Setenv(variable, *binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return netlab.Run(tests)
}
