package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// process is a running "nftproxy run".
type process struct {
	node *node
	cmd  *exec.Cmd
	log  *netlab.LogBuffer
	gone chan struct{} // closed when it has ended
}

// start starts the program.
func (n *node) start(flags ...string) *process {
	n.t.Helper()
	return n.startUnder(nil, flags...)
}

// startUnder starts the program with a command in front of it, whose process
// becomes that of the program. It prints the log if the test fails.
func (n *node) startUnder(command []string, flags ...string) *process {
	n.t.Helper()
	args := append(append(command, binary), append(n.arguments("run"), flags...)...)
	p := &process{node: n, cmd: exec.Command(args[0], args[1:]...), log: new(netlab.LogBuffer), gone: make(chan struct{})}
	// Faults are counted for each thread: let one do the work.
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p.cmd.Stderr = p.log
	if err := n.Node.Start(p.cmd); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.gone)
	}()
	n.t.Cleanup(func() {
		p.kill()
		if n.t.Failed() {
			fmt.Fprintf(n.t.Output(), "log of process %d:\n%s\n", p.cmd.Process.Pid, p.log.String())
		}
	})
	return p
}

// in returns the process for use in a subtest.
func (p *process) in(t *testing.T) *process {
	return &process{node: p.node.in(t), cmd: p.cmd, log: p.log, gone: p.gone}
}

// lives reports whether the program still runs.
func (p *process) lives() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// kill ends the program with SIGKILL, as the kernel does when it lacks memory.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.gone
}

// awaitLog waits until the program has logged a message, or has ended.
func (p *process) awaitLog(message string) {
	p.node.t.Helper()
	p.node.eventually(func() error {
		if p.lives() && !strings.Contains(p.log.String(), message) {
			return fmt.Errorf("it has not logged %q", message)
		}
		return nil
	})
}

// stop ends the program, which must exit well if it has begun its work: before,
// the signal just ends it.
func (p *process) stop() {
	p.node.t.Helper()
	p.awaitLog("listening")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.node.t.Fatal(err)
	}
	<-p.gone
	if status := p.cmd.ProcessState.ExitCode(); status != 0 {
		p.node.t.Errorf("the program ends with status %d", status)
	}
}
