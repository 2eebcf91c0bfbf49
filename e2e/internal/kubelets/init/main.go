// Command init is the first process of a node: it arranges the mounts of its
// namespace, creates the file "ready", and then reaps processes that lost their
// parent until it is killed, which ends all processes of the node.
//
// Usage: init DIRECTORY, in which the node keeps its files.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	dir := os.Args[1]
	err := mounts(dir)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range children {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
				break
			}
		}
	}
}

// mounts gives the node /proc, /sys and /run of its own, and writes to /etc and
// /var go to its directory.
func mounts(dir string) error {
	if err := unix.Sethostname([]byte(filepath.Base(dir))); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	cgroup := filepath.Join(dir, "cgroup") // while /sys is replaced
	if err := os.MkdirAll(cgroup, 0o755); err != nil {
		return err
	}
	const bind = unix.MS_BIND | unix.MS_REC
	steps := []func() error{
		mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
		mount("/sys/fs/cgroup", cgroup, "", bind, ""),
		mount("sysfs", "/sys", "sysfs", 0, ""),
		mount(cgroup, "/sys/fs/cgroup", "", bind, ""),
		mount("proc", "/proc", "proc", 0, ""),
		mount("tmpfs", "/run", "tmpfs", 0, "mode=755"),
		overlay(dir, "/etc"),
		overlay(dir, "/var"),
	}
	// containerd's own overlays need a plain file system below them.
	for _, d := range []string{"/var/lib/containerd", "/var/lib/kubelet"} {
		steps = append(steps, func() error {
			own := filepath.Join(dir, filepath.Base(d))
			for _, d := range []string{own, d} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					return err
				}
			}
			return mount(own, d, "", bind, "")()
		})
	}
	// Volumes of pods appear in containers that were started before.
	steps = append(steps, mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""))
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, data string) func() error {
	return func() error {
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", source, target, err)
		}
		return nil
	}
}

// overlay keeps what the node writes to a directory of the machine in its own.
func overlay(dir, target string) func() error {
	return func() error {
		upper, work := filepath.Join(dir, "upper", target), filepath.Join(dir, "work", target)
		for _, d := range []string{upper, work} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		return mount("overlay", target, "overlay", 0, "lowerdir="+target+",upperdir="+upper+",workdir="+work)()
	}
}
