package testbed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// idleCPU is the most processor time that an idle proxy uses in the time of calm.
const idleCPU = 4 * tick

// Ended reports whether a process has ended and was not waited for.
func (p *Process) Ended(t testing.TB) bool {
	t.Helper()
	return p.stat(t)[0] == "Z"
}

// stat returns the fields of /proc/PID/stat from the state on.
func (p *Process) stat(t testing.TB) []string {
	t.Helper()
	stat, err := os.ReadFile(p.ProcFile("stat"))
	if err != nil {
		t.Fatal(err)
	}
	// The name, which ends with the last parenthesis, is field 2.
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// CPU returns the processor time that a process has used, with that of those
// that it has started and waited for.
func (p *Process) CPU(t testing.TB) time.Duration {
	t.Helper()
	fields := p.stat(t)
	if fields[0] == "Z" {
		t.Fatalf("%s has ended", p.Name)
	}
	var ticks int
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%s: %v", p.ProcFile("stat"), err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// Wakeups returns how often the threads of a process have waited for something: each
// time, they were woken up before or after.
func (p *Process) Wakeups(t testing.TB) (n int) {
	t.Helper()
	threads, err := filepath.Glob(p.ProcFile("task/*/status"))
	if err != nil || len(threads) == 0 {
		t.Fatalf("%s: %d threads, %v", p.Name, len(threads), err)
	}
	for _, file := range threads {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(status)) {
			if key, value, _ := strings.Cut(line, ":"); key == "voluntary_ctxt_switches" {
				count, _ := strconv.Atoi(strings.TrimSpace(value))
				n += count
			}
		}
	}
	return n
}

// Memory returns that of a process.
func (p *Process) Memory(t testing.TB) *results.Memory {
	t.Helper()
	m, err := results.MemoryOf(p.Cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

// children returns the processes that a process has started and not yet waited
// for.
func (p *Process) children() (pids []int) {
	lists, _ := filepath.Glob(p.ProcFile("task/*/children"))
	for _, file := range lists {
		list, _ := os.ReadFile(file)
		for f := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (p *Process) ProcFile(file string) string {
	return fmt.Sprintf("/proc/%d/%s", p.Cmd.Process.Pid, file)
}

// Busy reports whether a process, or a child that it waits for, uses the
// processor.
func (p *Process) Busy(t testing.TB, since time.Duration) bool {
	t.Helper()
	return p.CPU(t)-since > idleCPU || len(p.children()) > 0
}

// MostMemory returns the most memory that an ended process had, or one of those
// that it has started and waited for, in bytes.
func (p *Process) MostMemory() uint64 {
	return uint64(p.Cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) << 10
}
