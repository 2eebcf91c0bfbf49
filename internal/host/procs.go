package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

// Arguments returns the command line of the process.
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
	if own != other || !hasCapability(string(status), unix.CAP_NET_ADMIN) {
		return fmt.Errorf("process %s cannot change the rules here, so it is not nftproxy", p)
	}
	return nil
}

// hasCapability reports whether the text of /proc/PID/status has an effective capability.
func hasCapability(status string, capability uint) bool {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && set>>capability&1 == 1
		}
	}
	return false
}

func (p Process) procFile(name string) string { return fmt.Sprintf("/proc/%d/%s", p.PID, name) }
