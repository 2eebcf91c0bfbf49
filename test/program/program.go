// Package program builds nftproxy for the tests that run it as a whole.
package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Main is what TestMain of such a package does: it puts the path of the program
// into binary, runs the tests, and returns their exit code. source is the path to
// the program's package. NFTPROXY names a program to test instead, such as a
// released one.
func Main(binary *string, source string, tests func() int) int {
	code, err := run(binary, source, tests)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(binary *string, source string, tests func() int) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("these tests make network namespaces and load nftables rules: run them as root")
	}
	if *binary = os.Getenv("NFTPROXY"); *binary != "" {
		return tests(), nil
	}
	dir, err := os.MkdirTemp("", "nftproxy-test-")
	if err != nil {
		return 0, fmt.Errorf("make directory for the program: %w", err)
	}
	defer os.RemoveAll(dir)
	*binary = filepath.Join(dir, "nftproxy")
	if out, err := exec.Command("go", "build", "-o", *binary, source).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build nftproxy: %w\n%s", err, out)
	}
	return tests(), nil
}
