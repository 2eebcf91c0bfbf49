package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const jobsCommand = "jobs"

// guest is the first process of a virtual machine. It runs the jobs in another
// process, which does not inherit orphans, and ends the machine.
func guest() {
	if err := serveGuest(); err != nil {
		fmt.Println("the tests in the virtual machine:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		fmt.Println("end the virtual machine:", err)
	}
}

func serveGuest() error {
	if err := prepareGuest(); err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe", jobsCommand)
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

// prepareGuest makes the machine what a node is before anything runs there.
func prepareGuest() error {
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

// runJobs runs the jobs and reports on the second serial port.
func runJobs() error {
	list, err := os.ReadFile(guestJobs)
	if err != nil {
		return err
	}
	var jobs []job
	if err := json.Unmarshal(list, &jobs); err != nil {
		return err
	}
	port, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	report := json.NewEncoder(port)
	kernel, nft, err := versions("nft")
	if err != nil {
		return err
	}
	for _, j := range jobs {
		fmt.Printf("%s on %s\n", j.Package, kernel)
		r := j.run(context.Background(), guestSource, guestPrograms, nil, os.Stdout)
		r.Kernel, r.Nft = kernel, nft
		fmt.Printf("%s: %d passed, %.1f s\n", j.Package, r.Passed, r.Seconds)
		if err := report.Encode(r); err != nil {
			return err
		}
	}
	return port.Close()
}

// versions returns the versions of the kernel and of a program nft.
func versions(nft string) (kernel, version string, err error) {
	out, err := output(exec.Command(nft, "--version"))
	if err != nil {
		return "", "", err
	}
	words := strings.Fields(out) // nftables v1.0.6 (Lester Gooch #5)
	if len(words) < 2 {
		return "", "", fmt.Errorf("nft calls its version %q", out)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", "", err
	}
	return unix.ByteSliceToString(name.Release[:]), words[0] + " " + words[1], nil
}
