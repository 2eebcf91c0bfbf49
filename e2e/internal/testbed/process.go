package testbed

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Process is a program that runs on a host.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Log  netlab.LogBuffer
}

// Start starts a program.
func Start(t testing.TB, on *netlab.Host, what Program, args ...string) *Process {
	t.Helper()
	return StartCommand(t, on, what.Name, exec.Command(what.Path, args...))
}

// StartCommand starts a process, which is killed at the end of the test. The
// end of its log is printed if the test fails.
func StartCommand(t testing.TB, on *netlab.Host, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, Cmd: cmd}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Log, &p.Log
	p.Cmd.WaitDelay = time.Second // for what it has started itself
	if err := on.Start(p.Cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			fmt.Fprintf(t.Output(), "end of the log of %s:\n%s\n", p.Name, tail(&p.Log, 40))
		}
	})
	return p
}

// Run runs a command on the node and returns what it prints.
func (c *Cluster) Run(cmd *exec.Cmd) string {
	c.T.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.Node.Run(cmd); err != nil {
		c.T.Fatalf("%s: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	return stdout.String()
}

// End sends SIGTERM and waits for the end of the process, whatever its exit
// status.
func (p *Process) End(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	_ = p.Cmd.Wait()
}

// Kubectl runs kubectl as an administrator and returns what it prints.
func (c *Cluster) Kubectl(args ...string) string {
	c.T.Helper()
	cmd := exec.Command(kubectl.Path, append(args, "--kubeconfig", c.Kubeconfig("admin", "system:masters"))...)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir) // it keeps a cache there
	return c.Run(cmd)
}

// KubectlScript runs commands of kubectl for a shell, with the access of a kubeconfig.
func (c *Cluster) KubectlScript(kubeconfig, script string) string {
	c.T.Helper()
	cmd := exec.Command("sh", "-euc", `kubectl() { "$KUBECTL" "$@"; }`+"\n"+script)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir, "KUBECTL="+kubectl.Path, "KUBECONFIG="+kubeconfig)
	return c.Run(cmd)
}

// Kill ends the process without giving it a chance to clean up.
func (p *Process) Kill() {
	if p.Cmd.ProcessState == nil {
		_ = p.Cmd.Process.Kill()
		_ = p.Cmd.Wait() // the error says that the process was killed
	}
}

// Stop sends SIGTERM and checks that the process ends well.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	if err := p.Cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v, want exit status 0", p.Name, err)
	}
}

func (p *Process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// tail returns the last n lines of a log.
func tail(b *netlab.LogBuffer, n int) string {
	lines := strings.SplitAfter(b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// MetricsServer is the metrics server of a proxy.
const MetricsServer = "127.0.0.1:10249"

// ReadMetric reads a metric in the namespace of the calling thread.
func ReadMetric(server, metric string) (float64, error) {
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /metrics HTTP/1.0\r\nHost: %s\r\n\r\n", server); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), metric); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", metric)
}
