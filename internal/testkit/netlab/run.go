package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// inUserNamespace in the environment marks a process that [Run] has started.
const inUserNamespace = "NFTPROXY_TEST_USER_NAMESPACE"

// Run returns the exit code of tests, usually m.Run. TestMain of a package
// whose tests make network namespaces exits with it.
//
// Without root, the tests run in another process of this program and with its
// arguments, as root of user, mount and network namespaces of its own. Where the
// kernel forbids that, [TestNamespace] and [TestLab] skip their tests. A program
// that the tests also start for something else has to branch before Run.
func Run(tests func() int) int {
	switch {
	case os.Getenv(inUserNamespace) != "":
		if err := prepareUserNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare user namespace:", err)
			return 1
		}
	case !permitted():
		if code, err := runInUserNamespace(); err == nil {
			return code
		}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(roomyGC)
	}
	return tests()
}

// roomyGC is the value of GOGC of tests: rules and commands are garbage soon, and little of it is in use, so the
// collector would take a third of the time.
const roomyGC = 400

// SkipInUserNamespace skips a test of something that the kernel grants to root alone, and
// not to the root of a user namespace.
func SkipInUserNamespace(t Test, what string) {
	t.Helper()
	if os.Getenv(inUserNamespace) != "" {
		t.Skip(what + " needs root outside of user namespaces")
	}
}

// permitted reports whether this process may make network namespaces.
func permitted() bool {
	ns, err := NewNamespace()
	return err == nil && ns.Close() == nil
}

// prepareUserNamespace gives the process what root finds on every machine: a
// loopback interface that is up, and a writable /run for the lock of iptables.
// Missing rights show up in the tests.
func prepareUserNamespace() error {
	if !permitted() {
		return nil
	}
	return errors.Join(linkUp("lo"), unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
}

// runInUserNamespace runs this program again, and returns its exit code.
func runInUserNamespace() (int, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = os.Args, append(os.Environ(), inUserNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // the signal comes at the end of the thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}
