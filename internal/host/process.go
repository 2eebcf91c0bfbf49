package host

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

// String returns both. The name is quoted: a process chooses its own.
func (p Process) String() string { return fmt.Sprintf("%d (%q)", p.PID, p.Name) }

// ProcessOf returns the process with the netlink socket of that port in the network
// namespace of the calling thread. It returns the zero Process if /proc does not show
// it, for example because it runs in another container.
func ProcessOf(port uint32) Process {
	socket := socketOf(port)
	if socket == "" {
		return Process{}
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return Process{}
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == socket {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
			return Process{PID: pid, Name: commandOf(pid)}
		}
	}
	return Process{}
}

// OfThread returns the process of a thread: the kernel reports the thread that has
// sent a message. It returns p if /proc does not show the thread with this number and
// name: it may have ended, or run in another container.
func (p Process) OfThread() Process {
	if p.PID == 0 || commandOf(p.PID) != p.Name {
		return p
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(status)) {
		group, ok := strings.CutPrefix(line, "Tgid:")
		if !ok {
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(group)); err == nil && pid != p.PID {
			p = Process{PID: pid, Name: cmp.Or(commandOf(pid), p.Name)} // it may have ended since
		}
	}
	return p
}

func commandOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(name), "\n")
}

// socketOf returns the link target in /proc for the netfilter socket with that port.
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
