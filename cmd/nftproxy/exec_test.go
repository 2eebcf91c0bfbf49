package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestProgramsEndWithTheProcess: 3.33. Programs of health checks that ignore SIGTERM do not
// outlive the process, nor do their children; if it is killed, the kernel ends the programs.
func TestProgramsEndWithTheProcess(t *testing.T) {
	for _, c := range []struct {
		name     string
		end      func(p *process)
		children bool
	}{
		{"SIGTERM", func(p *process) {
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			p.ends(t, 0)
		}, true},
		{"SIGKILL", func(p *process) { p.kill() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns, dir := netlab.TestNamespace(t), t.TempDir()
			script := filepath.Join(dir, "hang.sh")
			text := fmt.Sprintf("#!/bin/sh\ntrap : TERM HUP\nsleep 1000 &\necho $! >%[1]s/$$.new\nmv %[1]s/$$.new %[1]s/$$.child\nwhile :; do wait; done\n", dir)
			if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			file := writeFile(t, "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: [10.0.0.1, 10.0.0.2]\ncheck: {exec: ["+script+"], interval: 30s, timeout: 20s}\n")
			p := start(t, ns, "nftproxy", "run", "-f", file, noLimit)
			var programs, children []int
			eventually(t, "the programs run", func() bool {
				programs, children = started(t, dir)
				return len(programs) == 2
			})
			c.end(p)
			if !c.children {
				for _, pid := range children {
					t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
				}
				children = nil
			}
			for _, pid := range append(programs, children...) {
				eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool { return ended(pid) })
			}
		})
	}
}

// started returns the process numbers of the scripts that have started, and those of their
// children.
func started(t *testing.T, dir string) (programs, children []int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.child"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		program, err1 := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".child"))
		child, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		programs, children = append(programs, program), append(children, child)
	}
	return programs, children
}

// ended reports whether a process has ended. Its parent may still have to read that.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}
