// Package test holds black-box tests: the real binary, the kernel of this
// machine and real packets, in a laboratory of network namespaces.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run builds the program and runs the tests. NFTPROXY names a program to test
// instead, such as a released one.
func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return fail("these tests make network namespaces and load nftables rules: run them as root")
	}
	if binary = os.Getenv("NFTPROXY"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "nftproxy-test-")
	if err != nil {
		return fail("make directory for the program: %v", err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "nftproxy")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/nftproxy").CombinedOutput(); err != nil {
		return fail("build nftproxy: %v\n%s", err, out)
	}
	return m.Run()
}

func fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return 1
}
