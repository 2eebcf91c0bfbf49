package kernel

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is a process as the kernel or /proc names it.
type Process struct {
	PID  int    // zero: not known
	Name string // the first 15 bytes
}

// String quotes the name, which any process can choose.
func (p Process) String() string { return fmt.Sprintf("%d (%q)", p.PID, p.Name) }

// processOf returns the process with the netlink socket of a port in the network
// namespace of the calling thread. The zero Process means that /proc does not show
// it, as with a process in another container.
func processOf(port uint32) Process {
	socket := socketOf(port)
	if socket == "" {
		return Process{}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == socket {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
			return Process{PID: pid, Name: commandOf(pid)}
		}
	}
	return Process{}
}

// ofThread returns the process that a thread belongs to: the kernel names the
// thread that sent something. A thread that /proc does not show under this number
// and name is returned unchanged: it may have ended, or be in another container.
func (p Process) ofThread() Process {
	if p.PID == 0 || commandOf(p.PID) != p.Name {
		return p
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return p
	}
	_, group, _ := strings.Cut(string(status), "\nTgid:\t")
	group, _, _ = strings.Cut(group, "\n")
	if pid, err := strconv.Atoi(group); err == nil && pid != p.PID {
		p = Process{PID: pid, Name: cmp.Or(commandOf(pid), p.Name)} // it may end now
	}
	return p
}

// commandOf returns the name of a process or thread, empty if it has ended.
func commandOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(name), "\n")
}

// socketOf returns the link target in /proc of file descriptors of the netfilter
// socket with a port.
func socketOf(port uint32) string {
	f, err := os.Open("/proc/thread-self/net/netlink")
	if err != nil {
		return ""
	}
	defer f.Close()
	// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 10 && fields[1] == strconv.Itoa(unix.NETLINK_NETFILTER) && fields[2] == strconv.FormatUint(uint64(port), 10) {
			return "socket:[" + fields[9] + "]"
		}
	}
	return ""
}
