package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const machineTimeout = time.Hour

// machine is what qemu emulates of an architecture.
type machine struct {
	qemu      []string // program and arguments
	console   string   // device for standard input and output
	answers   string   // device that is written to the file of answers
	emulator  string   // of single programs, on other machines
	libraries string   // directory of libraries
	loader    string   // of programs, there
	kernel    string   // arguments of the kernel
}

var machines = map[string]machine{
	"amd64": {[]string{"qemu-system-x86_64", "-device", "isa-serial,chardev=console", "-device", "isa-serial,chardev=answers"},
		"ttyS0", "ttyS1", "qemu-x86_64-static", "x86_64-linux-gnu", "ld-linux-x86-64.so.2",
		// On a busy machine no interrupt of the timer may come while the kernel waits for one: it panics.
		" no_timer_check"},
	"arm64": {[]string{"qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72", "-serial", "chardev:console", "-device", "pci-serial,chardev=answers"},
		"ttyAMA0", "ttyS0", "qemu-aarch64-static", "aarch64-linux-gnu", "ld-linux-aarch64.so.1", ""},
}

// AnswersPort returns the device in the virtual machine that is written to the file of
// answers.
func AnswersPort() string { return "/dev/" + machines[runtime.GOARCH].answers }

// Boot runs a virtual machine of two processors to its end. Its first process is
// /init of the initial file system, with an argument.
func (s System) Boot(ctx context.Context, initrd, argument, answers string, out io.Writer) error {
	return s.boot(ctx, initrd, argument, answers, out, "-smp", "2")
}

// BootCounting runs a virtual machine of one processor in which time is counted in
// instructions: each takes a nanosecond, and waiting takes none of this machine's
// time. What is measured there does not depend on other load here.
func (s System) BootCounting(ctx context.Context, initrd, argument, answers string, out io.Writer) error {
	return s.boot(ctx, initrd, argument, answers, out, "-smp", "1", "-icount", "shift=0,sleep=off")
}

func (s System) boot(ctx context.Context, initrd, argument, answers string, out io.Writer, options ...string) error {
	ctx, cancel := context.WithTimeout(ctx, machineTimeout)
	defer cancel()
	cmd := s.Command(ctx, initrd, argument, answers, options...)
	cmd.Stdout, cmd.Stderr = out, out
	fmt.Fprintf(out, "booting the kernel of Debian %s\n", s.Codename)
	return errors.Join(cmd.Run(), ctx.Err())
}

// Command returns the command of a virtual machine, for those who run it in a network
// namespace or with more options of qemu. Its output is the console's.
func (s System) Command(ctx context.Context, initrd, argument, answers string, options ...string) *exec.Cmd {
	// Software emulation, also where the processor could do it: the same
	// everywhere. The processors take turns in one thread: with a thread each,
	// one can meet a breakpoint that another has long removed from the code of
	// the kernel, and the kernel panics (qemu 7.2, once in an hour).
	m := machines[s.Arch]
	args := slices.Concat(m.qemu[1:], []string{"-accel", "tcg,thread=single", "-m", "3G",
		"-nodefaults", "-display", "none", "-no-reboot", "-chardev", "stdio,id=console", "-chardev", "file,id=answers,path=" + answers,
		"-kernel", filepath.Join(s.dir, "vmlinuz"), "-initrd", initrd,
		"-append", "console=" + m.console + m.kernel + " loglevel=4 panic=-1 -- " + argument}, options)
	return exec.CommandContext(ctx, m.qemu[0], args...)
}

// Init is the first process of a virtual machine. It runs this program with an
// argument in another process, which does not inherit orphans, and ends the machine.
func Init(argument string) {
	if err := serve(argument); err != nil {
		fmt.Println("in the virtual machine:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		fmt.Println("end the virtual machine:", err)
	}
}

func serve(argument string) error {
	if err := prepare(); err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe", argument)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == child.Process.Pid && status != 0:
			return fmt.Errorf("ended with status %#x", uint32(status))
		case pid == child.Process.Pid:
			return nil
		}
	}
}

// prepare makes the machine what a node is before anything runs there.
func prepare() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	for name, value := range map[string]string{
		"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	return errors.Join(os.Chmod("/tmp", 0o1777), unix.Sethostname([]byte("node")), netlink.LinkSetUp(lo))
}
