package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/netlab"
)

// process is a program that runs on a host.
type process struct {
	name string
	cmd  *exec.Cmd
	log  netlab.LogBuffer
}

// start starts a program, which is killed at the end of the test. The end of
// its log is printed if the test fails.
func start(t *testing.T, on *netlab.Host, what program, args ...string) *process {
	t.Helper()
	p := &process{name: what.name, cmd: exec.Command(what.path, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := on.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.name, end(&p.log, 40))
		}
	})
	return p
}

// kill ends the process without giving it a chance to clean up.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it says that the process was killed
	}
}

// stop sends SIGTERM and checks that the process ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v, want exit status 0", p.name, err)
	}
}

// end returns the last n lines of a log.
func end(b *netlab.LogBuffer, n int) string {
	lines := strings.SplitAfter(b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
