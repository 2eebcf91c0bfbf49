package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// fault is an effect of strace on system calls, for example
// "error=ENOBUFS:when=1". Calls are counted for each thread, from the start of
// strace.
type fault struct {
	call, effect string
}

func (f fault) String() string { return f.call + " " + f.effect }

// tracer has the faults that came about.
type tracer struct {
	file string
	cmd  *exec.Cmd // nil: it ends with the program
}

func newTracer(t *testing.T) *tracer {
	t.Helper()
	return &tracer{file: filepath.Join(t.TempDir(), "strace")}
}

// arguments returns the command that makes a fault.
func (tr *tracer) arguments(f fault, more ...string) []string {
	return append([]string{"strace", "-f", "-ttt", "-o", tr.file, "-e", "trace=" + f.call, "-e", "signal=none",
		"-e", "inject=" + f.call + ":" + f.effect}, more...)
}

// startWith starts the program with a fault.
func (n *node) startWith(f fault, flags ...string) (*process, *tracer) {
	n.t.Helper()
	tr := newTracer(n.t)
	return n.startUnder(tr.arguments(f, "-qq", "-D"), flags...), tr // -D: strace is not the parent
}

// inject makes a fault in a program that runs, until the tracer is detached. With
// paths, it concerns only calls with these.
func (p *process) inject(f fault, paths ...string) *tracer {
	n := p.node
	n.t.Helper()
	var tr *tracer
	n.eventually(func() error {
		tr = p.trace(f, paths)
		missed := p.untraced()
		if missed == nil || !p.lives() {
			return nil
		}
		tr.detach()
		return missed
	})
	n.t.Cleanup(tr.detach)
	return tr
}

// trace attaches strace to the threads of the program.
func (p *process) trace(f fault, paths []string) *tracer {
	n := p.node
	n.t.Helper()
	tr := newTracer(n.t)
	args := tr.arguments(f, "-p", strconv.Itoa(p.cmd.Process.Pid))
	for _, path := range paths {
		args = append(args, "-P", path)
	}
	tr.cmd = exec.Command(args[0], args[1:]...)
	var said netlab.LogBuffer
	tr.cmd.Stderr = &said
	if err := n.Node.Start(tr.cmd); err != nil {
		n.t.Fatal(err)
	}
	n.eventually(func() error {
		if !strings.Contains(said.String(), "attached") {
			return fmt.Errorf("strace says %q", said.String())
		}
		return nil
	})
	return tr
}

// untraced returns an error if strace has missed a thread: one that started while
// strace read the list of threads.
func (p *process) untraced() error {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(status), "\nTracerPid:\t0\n") { // otherwise the thread has ended
			return fmt.Errorf("%s: strace does not trace the thread", file)
		}
	}
	return nil
}

// detach lets the program run on without faults. It can be called again.
func (tr *tracer) detach() {
	_ = tr.cmd.Process.Signal(syscall.SIGINT) // it may have ended with the program
	ended := make(chan struct{})
	go func() { defer close(ended); _ = tr.cmd.Wait() }()
	if await.Pace(ended, 20*time.Second) { // strace waits forever for a program that dies at that moment
		_ = tr.cmd.Process.Kill()
		<-ended
	}
}

// happened returns an error unless a call has failed.
func (tr *tracer) happened() error {
	if len(tr.injected()) == 0 {
		return errors.New("no call has failed")
	}
	return nil
}

// injected returns when faults came about.
func (tr *tracer) injected() []time.Time {
	text, _ := os.ReadFile(tr.file) // it comes with the first call
	var out []time.Time
	for line := range strings.Lines(string(text)) {
		// Thread, time, call.
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(line, "INJECTED") {
			seconds, err := strconv.ParseFloat(f[1], 64)
			if err == nil {
				out = append(out, time.UnixMicro(int64(seconds*1e6)))
			}
		}
	}
	return out
}
