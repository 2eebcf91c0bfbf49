package netlab

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name.
type Namespace struct {
	handle netns.NsHandle
	starts chan func()
}

// NewNamespace makes a namespace that holds nothing but a loopback interface,
// which is down.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{starts: make(chan func())}
	made := make(chan error)
	onOwnThread(func() {
		var err error
		if n.handle, err = netns.New(); err != nil {
			made <- fmt.Errorf("create network namespace: %w", err)
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
	return n.handle.Close()
}

// Do runs f with its thread in the namespace, and waits for it. Sockets that f
// makes stay in the namespace; goroutines that f starts are not in it.
func (n *Namespace) Do(f func() error) error {
	// What a goroutine that ends early leaves behind, as by t.FailNow.
	err := fmt.Errorf("function in network namespace did not return")
	done := make(chan struct{})
	onOwnThread(func() {
		defer close(done)
		if e := netns.Set(n.handle); e != nil {
			err = fmt.Errorf("enter network namespace: %w", e)
			return
		}
		err = f()
	})
	<-done
	return err
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

// onOwnThread runs f in a new goroutine on a thread that ends with it, so that
// no other goroutine ever runs in the namespace that f enters. The main thread
// is passed over: it cannot end, and its namespace is the one of /proc/self.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		moved := make(chan struct{})
		onOwnThread(func() {
			close(moved)
			f()
		})
		<-moved
		runtime.UnlockOSThread()
	}()
}
