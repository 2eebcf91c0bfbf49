package host

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	if pid, err := strconv.Atoi(statusField(string(status), "Tgid")); err == nil && pid != p.PID {
		p = Process{PID: pid, Name: cmp.Or(commandOf(pid), p.Name)} // it may have ended since
	}
	return p
}

// statusField returns a field of /proc/PID/status, or nothing.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
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

// ProcessWith returns the process with a number.
func ProcessWith(pid int) Process { return Process{PID: pid, Name: commandOf(pid)} }

// Processes returns the other processes with one of these names, by number.
func Processes(names ...string) []Process {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var out []Process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if name := commandOf(pid); slices.Contains(names, name) {
			out = append(out, Process{PID: pid, Name: name})
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out
}

func (p Process) Arguments() ([]string, error) {
	data, err := os.ReadFile(p.procFile("cmdline"))
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00"), nil
}

// Path returns where this process finds a file that the process names so: that may have
// another root or working directory.
func (p Process) Path(name string) string {
	if !filepath.IsAbs(name) {
		if dir, err := os.Readlink(p.procFile("cwd")); err == nil {
			name = filepath.Join(dir, name)
		}
	}
	return filepath.Join(p.procFile("root"), name)
}

// SharesNetwork reports whether the process is in the network namespace of the calling
// thread.
func (p Process) SharesNetwork() (bool, error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return false, err
	}
	other, err := os.Readlink(p.procFile("ns/net"))
	return own == other, err
}

// Variable returns a variable of the environment that the process was started with, or nothing.
func (p Process) Variable(name string) string {
	data, err := os.ReadFile(p.procFile("environ"))
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(data, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// CheckControl returns an error unless the process may change the rules of the network namespace of the
// calling thread, as far as this process can: it is there, in the same user namespace, with CAP_NET_ADMIN.
// A name, or the user 0 of a container without that, is no proof.
func (p Process) CheckControl() error {
	shared, err := p.SharesNetwork()
	if err == nil && !shared {
		return fmt.Errorf("process %s is in another network namespace", p)
	}
	own, errOwn := os.Readlink("/proc/self/ns/user")
	other, errOther := os.Readlink(p.procFile("ns/user"))
	status, errStatus := os.ReadFile(p.procFile("status"))
	if err := errors.Join(err, errOwn, errOther, errStatus); err != nil {
		return fmt.Errorf("process %s cannot be identified: %w", p, err)
	}
	capabilities, err := strconv.ParseUint(statusField(string(status), "CapEff"), 16, 64)
	if own != other || err != nil || capabilities>>unix.CAP_NET_ADMIN&1 == 0 {
		return fmt.Errorf("process %s cannot change the rules here, so it is not nftproxy", p)
	}
	return nil
}

func (p Process) procFile(name string) string { return fmt.Sprintf("/proc/%d/%s", p.PID, name) }
