// Package faults holds tests of the unmodified program on a kernel that fails:
// strace makes system calls of it end with an error, or kills it at one, while
// clients dial. Faults that can be had for real are real.
package faults

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
// instead.
func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return fail("these tests make network namespaces and load nftables rules: run them as root")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		return fail("these tests need strace: %v", err)
	}
	if binary = os.Getenv("NFTPROXY"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "nftproxy-faults-")
	if err != nil {
		return fail("make directory for the program: %v", err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "nftproxy")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/nftproxy").CombinedOutput(); err != nil {
		return fail("build nftproxy: %v\n%s", err, out)
	}
	return m.Run()
}

func fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return 1
}
