package results

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// MemoryOf returns what is resident of a process, and the most that ever was.
func MemoryOf(pid int) (Memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("read memory of a process: %w", err)
	}
	defer f.Close()
	var m Memory
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		into := map[string]*uint64{"VmRSS": &m.Resident, "VmHWM": &m.Peak, "RssAnon": &m.Anonymous}[key]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		*into = kib << 10
	}
	if m.Resident == 0 {
		return Memory{}, fmt.Errorf("read memory of process %d: it has none: did it end?", pid)
	}
	return m, nil
}
