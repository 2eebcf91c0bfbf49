package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

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
	data, err := os.ReadFile(p.file("cmdline"))
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00"), nil
}

// Path returns where this process finds a file that the process names so: that may have
// another root or working directory.
func (p Process) Path(name string) string {
	if !filepath.IsAbs(name) {
		if dir, err := os.Readlink(p.file("cwd")); err == nil {
			name = filepath.Join(dir, name)
		}
	}
	return filepath.Join(p.file("root"), name)
}

// SharesNetwork reports whether the process is in the network namespace of the calling
// thread.
func (p Process) SharesNetwork() (bool, error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return false, err
	}
	other, err := os.Readlink(p.file("ns/net"))
	return own == other, err
}

func (p Process) file(name string) string { return fmt.Sprintf("/proc/%d/%s", p.PID, name) }
