package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Patience is how long an event may take on a busy machine.
const Patience = 2 * time.Minute

// Machine is a lab whose node is a machine that runs nftproxy with a directory of files.
type Machine struct {
	*netlab.Lab
	T      *testing.T
	Log    netlab.LogBuffer // of nftproxy and of others, which a test that fails prints
	binary string
	dir    string
	daemon *exec.Cmd // nil: it does not run
}

// NewMachine makes a machine with a number of pods.
func NewMachine(t *testing.T, binary string, pods int) *Machine {
	t.Helper()
	m := &Machine{Lab: netlab.TestLab(t, pods), T: t, binary: binary, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Fprintln(t.Output(), m.Log.String())
		}
	})
	return m
}

// Path returns the path of a file of the machine.
func (m *Machine) Path(name string) string { return filepath.Join(m.dir, name) }

// Write writes a file of the machine.
func (m *Machine) Write(name, text string) {
	m.T.Helper()
	if err := os.MkdirAll(filepath.Dir(m.Path(name)), 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.WriteFile(m.Path(name), []byte(text), 0o644); err != nil {
		m.T.Fatal(err)
	}
}

// Balance writes a Balance into the directory that nftproxy follows.
func (m *Machine) Balance(name, text string) {
	m.T.Helper()
	m.Write("conf.d/"+name+".yaml", "kind: Balance\nname: "+name+"\n"+text)
}

// Serve runs another program on a host of the lab until the test ends. Its messages are in the log.
func (m *Machine) Serve(on *netlab.Host, name string, args ...string) *exec.Cmd {
	m.T.Helper()
	path, err := exec.LookPath(name)
	if err != nil { // Debian has servers where users do not look
		path = filepath.Join("/usr/sbin", name)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &m.Log, &m.Log
	if err := on.Start(cmd); err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // the error is the signal
	})
	return cmd
}

// Start starts nftproxy, with further arguments.
func (m *Machine) Start(args ...string) {
	m.T.Helper()
	cmd := exec.Command(m.binary, append([]string{"run", "-f", m.Path("conf.d"), "--isolate-files", "--drain-file", "", "--healthz-bind-address", ""}, args...)...)
	cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=", "STATE_DIRECTORY="+m.dir, "RUNTIME_DIRECTORY=")
	cmd.Stdout, cmd.Stderr = &m.Log, &m.Log
	if err := m.Node.Start(cmd); err != nil {
		m.T.Fatal(err)
	}
	m.daemon = cmd
	m.T.Cleanup(m.Stop)
}

// Stop ends nftproxy, whose rules stay.
func (m *Machine) Stop() {
	if m.daemon == nil {
		return
	}
	_ = m.daemon.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = m.daemon.Wait()                          // the error is the signal
	m.daemon = nil
}

// Run runs a command of nftproxy on the machine, and returns all that it prints.
func (m *Machine) Run(args ...string) string {
	m.T.Helper()
	cmd := exec.Command(m.binary, args...)
	var out netlab.LogBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := m.Node.Run(cmd); err != nil && !errors.As(err, new(*exec.ExitError)) {
		m.T.Fatal(err)
	}
	return out.String()
}

// Shows waits until the output of a command has a text.
func (m *Machine) Shows(text string, args ...string) {
	m.T.Helper()
	netlab.Eventually(m.T, Patience, func() error {
		if out := m.Run(args...); !strings.Contains(out, text) {
			return fmt.Errorf("nftproxy %s does not show %q:\n%s", strings.Join(args, " "), text, out)
		}
		return nil
	})
}
