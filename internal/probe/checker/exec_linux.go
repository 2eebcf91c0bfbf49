package checker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// execCheck runs a program, which succeeds with exit code 0.
type execCheck struct {
	*model.Check
	Target
}

// leftBehind is how long the output of a program may stay open after its end, if a child
// that has left the process group holds it.
const leftBehind = 100 * time.Millisecond

func (c execCheck) run(ctx context.Context) error {
	return RunProgram(ctx, c.Command, []string{
		"NFTPROXY_ADDRESS=" + c.Address.Addr().String(),
		fmt.Sprintf("NFTPROXY_PORT=%d", c.Address.Port()),
		"NFTPROXY_SERVICE=" + c.Service.String(),
	})
}

// RunProgram runs a program with its arguments, in the root directory and with no variables but PATH
// and these, until ctx ends: then it is killed, with its process group. The error is nil if its exit
// code is 0.
func RunProgram(ctx context.Context, command, env []string) error {
	var out firstLine
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "/", &out, &out, leftBehind
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	// The kernel kills the program when the thread that started it ends, which is with the
	// process at the latest: also if that is killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return in("start "+command[0], err)
	}
	// The daemon's protection from the OOM killer is not for programs that it runs.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
	killed := wait(ctx, cmd.Process.Pid)
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case killed:
		return in(command[0], context.Cause(ctx))
	case errors.As(err, &exit) && exit.Exited():
		return in(command[0], fmt.Errorf("exit code %d%s", exit.ExitCode(), out.suffix()))
	case exit != nil:
		return in(command[0], fmt.Errorf("%s%s", exit.Error(), out.suffix()))
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // of a child
	}
	return in(command[0], err)
}

// wait returns when a process has ended, and kills it with all of its process group when
// the context ends; then killed is true. What is left of the group is killed in any case.
// The process is not reaped: until that its number belongs to no other.
func wait(ctx context.Context, pid int) (killed bool) {
	kill := func() { _ = unix.Kill(-pid, unix.SIGKILL) }
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		kill()
	})
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	if killed = !stop(); killed {
		<-done
	}
	kill()
	return killed
}

// firstLine keeps the first line that is written.
type firstLine struct {
	text strings.Builder
	done bool
}

// Write implements [io.Writer]. It never fails, so that a program which writes much is not
// killed by a closed pipe.
func (f *firstLine) Write(p []byte) (int, error) {
	for _, b := range p {
		if f.done = f.done || b == '\n' && f.text.Len() > 0 || f.text.Len() == budget.CheckError; f.done {
			break
		}
		if b != '\n' {
			f.text.WriteByte(b)
		}
	}
	return len(p), nil
}

func (f *firstLine) suffix() string {
	if text := strings.TrimSpace(strings.ToValidUTF8(f.text.String(), "?")); text != "" {
		return ": " + text
	}
	return ""
}
