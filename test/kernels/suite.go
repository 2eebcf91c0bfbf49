package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	module = "github.com/nftproxy/nftproxy/"
	netlab = module + "internal/testkit/netlab"
	// guestTag is the build tag of tests that change the machine itself, and so
	// run in virtual ones alone.
	guestTag = "guest"
)

// unfit are packages whose tests need programs that the machines do not have: strace,
// keepalived and conntrackd, ip, dnsmasq, HAProxy and nginx.
var unfit = []string{module + "test/faults", module + "test/pair", module + "test/ecmp", module + "test/names", module + "test/servers"}

// suite is the tests of this repository, compiled.
type suite struct {
	work     string // a directory for temporary files
	programs string // directory of PACKAGE.test and nftproxy
	init     string // this program, for the virtual machine
	packages []string
	tests    string // a regular expression; empty: all
	golden   bool   // run the golden tests on this machine, too
	counting bool   // time is counted in instructions in virtual machines
}

// buildSuite compiles the tests of those packages that make network namespaces and are
// selected, for a system of an architecture that has no C library, and those of the golden
// cases if they are to run on this machine.
func buildSuite(ctx context.Context, work string, o options) (*suite, error) {
	s := &suite{work: work, tests: o.tests, golden: o.golden, counting: o.counting, programs: filepath.Join(work, "tests"), init: filepath.Join(work, "init")}
	if err := os.Mkdir(s.programs, 0o755); err != nil {
		return nil, err
	}
	// What is listed first is a package with tests.
	tags := "-tags=" + guestTag
	if s.counting {
		tags += ",counting"
	}
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}} {{join .TestImports " "}} {{join .XTestImports " "}}`
	list, err := output(exec.CommandContext(ctx, "go", "list", tags, "-f", format, "./..."))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if slices.Contains(words, netlab) && !slices.Contains(unfit, words[0]) && o.packages.MatchString(strings.TrimPrefix(words[0], module)) {
			s.packages = append(s.packages, words[0])
		}
	}
	if len(s.packages) == 0 {
		return nil, errors.New("no package that is selected has tests that use the kernel; run this at the top of the repository")
	}
	tests := slices.Clone(s.packages)
	if s.golden {
		tests = append(tests, "./golden")
	}
	// Without symbols, which only debuggers read: the files go to memory.
	build := [][]string{
		append([]string{"test", "-c", tags, "-ldflags=-s -w", "-o", s.programs + "/"}, tests...),
		{"build", "-ldflags=-s -w", "-o", s.programs + "/", "./cmd/nftproxy"},
		{"build", "-ldflags=-s -w", "-o", s.init, "./test/kernels"},
	}
	for _, args := range build {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+o.arch)
		if _, err := output(cmd); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// output runs a command and returns what it prints, or an error with it.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), complaint.String())
	}
	return out.String(), nil
}
