package kubelets

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// space is the namespaces of a process, in a thread of this one.
type space struct{ calls chan func() }

// enter joins the namespaces of the process for network, mounts, host name and
// process ids. What the space starts dies with that process, the first of its
// process ids.
func enter(pid int) (*space, error) {
	s := &space{calls: make(chan func())}
	joined := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			defer unix.Close(fd)
			// Threads share the working directory, which has to be in one's own mounts.
			if err = unix.Unshare(unix.CLONE_FS); err == nil {
				err = unix.Setns(fd, unix.CLONE_NEWNET|unix.CLONE_NEWNS|unix.CLONE_NEWUTS|unix.CLONE_NEWPID)
			}
		}
		joined <- err
		if err != nil {
			return
		}
		for f := range s.calls {
			f()
		}
	}()
	if err := <-joined; err != nil {
		return nil, fmt.Errorf("enter namespaces of process %d: %w", pid, err)
	}
	return s, nil
}

// do runs f in the namespaces. Sockets that f makes stay in them.
func (s *space) do(f func() error) error {
	done := make(chan error)
	s.calls <- func() { done <- f() }
	return <-done
}

// Start starts cmd in the namespaces.
func (s *space) Start(cmd *exec.Cmd) error { return s.do(cmd.Start) }

func (s *space) close() { close(s.calls) }
