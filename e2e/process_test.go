package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/netlab"
)

// process is a program that runs on a host.
type process struct {
	name string
	cmd  *exec.Cmd
	log  netlab.LogBuffer
}

// start starts a program.
func start(t testing.TB, on *netlab.Host, what program, args ...string) *process {
	t.Helper()
	return startCommand(t, on, what.name, exec.Command(what.path, args...))
}

// startCommand starts a process, which is killed at the end of the test. The
// end of its log is printed if the test fails.
func startCommand(t testing.TB, on *netlab.Host, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.WaitDelay = time.Second // for what it has started itself
	if err := on.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.name, tail(&p.log, 40))
		}
	})
	return p
}

// run runs a command on the node and returns what it prints.
func (c *cluster) run(cmd *exec.Cmd) string {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.Node.Run(cmd); err != nil {
		c.t.Fatalf("%s: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	return stdout.String()
}

// end sends SIGTERM and waits for the end of the process, whatever it makes of
// the signal.
func (p *process) end(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// kubectl runs kubectl as an administrator and returns what it prints.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(kubectl.path, append(args, "--kubeconfig", c.kubeconfig("admin", "system:masters"))...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir) // it keeps a cache there
	return c.run(cmd)
}

// kill ends the process without giving it a chance to clean up.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it says that the process was killed
	}
}

// stop sends SIGTERM and checks that the process ends well.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v, want exit status 0", p.name, err)
	}
}

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// tail returns the last n lines of a log.
func tail(b *netlab.LogBuffer, n int) string {
	lines := strings.SplitAfter(b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
