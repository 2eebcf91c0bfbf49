package netlab

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/netspace"
)

// Namespace is a network namespace without a name.
type Namespace struct {
	*netspace.Space
	starts chan func()
}

// NewNamespace makes a namespace that holds nothing but a loopback interface,
// which is down.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{starts: make(chan func())}
	made := make(chan error)
	netspace.OnOwnThread(func() {
		var err error
		if n.Space, err = netspace.New(); err != nil {
			made <- err
			return
		}
		made <- nil
		for start := range n.starts {
			start()
		}
	})
	if err := <-made; err != nil {
		return nil, err
	}
	return n, nil
}

// Close gives the namespace up and kills the processes started in it. Sockets
// that are still open keep it alive until they are closed.
func (n *Namespace) Close() error {
	close(n.starts)
	return n.Space.Close()
}

// Start starts cmd in the namespace; the caller waits for it. The process is
// killed when the namespace is closed or when this process ends.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// The signal comes at the end of the thread that started the process, so
	// this must be the one thread that lives as long as the namespace.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	n.starts <- func() { started <- cmd.Start() }
	return <-started
}

// Run starts cmd in the namespace and waits for it.
func (n *Namespace) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Output runs a command in the namespace and returns its output, with standard error.
func (n *Namespace) Output(name string, args ...string) (string, error) {
	var out LogBuffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.Run(cmd)
	return out.String(), err
}

// TestScript runs a shell script in the namespace, with arguments.
func (n *Namespace) TestScript(t Test, script string, args ...string) {
	t.Helper()
	if out, err := n.Output("sh", append([]string{"-ec", script, "sh"}, args...)...); err != nil {
		t.Fatal(fmt.Sprintf("%s: %v\n%s", script, err, out))
	}
}
