package results

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where something was measured.
type Machine struct {
	CPU    string `json:"cpu"`    // model
	Cores  int    `json:"cores"`  // that the process may use
	Memory uint64 `json:"memory"` // bytes
	Kernel string `json:"kernel"` // release
}

// ThisMachine describes the machine that the process runs on.
func ThisMachine() (Machine, error) {
	var name unix.Utsname
	var info unix.Sysinfo_t
	if err := unix.Uname(&name); err != nil {
		return Machine{}, fmt.Errorf("read the kernel's release: %w", err)
	}
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("read the size of memory: %w", err)
	}
	model, err := cpuModel()
	return Machine{
		CPU:    model,
		Cores:  runtime.NumCPU(),
		Memory: uint64(info.Totalram) * uint64(info.Unit),
		Kernel: unix.ByteSliceToString(name.Release[:]),
	}, err
}

// Load returns the load average of the last minute, or zero if the kernel does not say it.
func Load() (average float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(string(text), &average) // zero if it is malformed
	return average
}

// cpuModel returns the name that the first processor gives itself, or the
// architecture where it gives none.
func cpuModel() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("read the model of the processor: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value), nil
		}
	}
	return runtime.GOARCH, nil
}
