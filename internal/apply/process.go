package apply

import (
	"bufio"
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

// String returns both for people. A name is quoted: any process chooses its own.
func (p Process) String() string { return fmt.Sprintf("%d (%q)", p.PID, p.Name) }

// processOf returns the process that has the netlink socket of that port in the
// network namespace of the caller's thread, as far as /proc shows it: a process
// in a container does not see those in others. The zero Process means that it
// was not found.
func processOf(port uint32) Process {
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
			dir := filepath.Dir(filepath.Dir(file))
			pid, _ := strconv.Atoi(filepath.Base(dir))
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // it may be gone by now
			return Process{PID: pid, Name: strings.TrimSuffix(string(name), "\n")}
		}
	}
	return Process{}
}

// socketOf returns what a file descriptor of the netfilter socket with that
// port links to in /proc.
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
