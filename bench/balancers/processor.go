package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// processorTime returns what the clients, the servers and the balancer of a room have
// used of the processors, with the threads of the kernel that handle packets if a
// process does not do so itself. Other load on the machine is left out, except
// for those threads.
func (r *room) processorTime() (sum time.Duration, err error) {
	pids := map[int]bool{}
	for _, c := range r.running {
		if c.cmd.ProcessState == nil {
			addFamily(pids, c.cmd.Process.Pid)
		}
	}
	threads, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		name, _ := os.ReadFile(t) // the process may have ended
		if bytes.HasPrefix(name, []byte("ksoftirqd/")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(t)))
			pids[pid] = true
		}
	}
	for pid := range pids {
		used, err := used(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// addFamily adds a process and all that it has started.
func addFamily(pids map[int]bool, pid int) {
	pids[pid] = true
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range lists {
		list, _ := os.ReadFile(file)
		for f := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(f); err == nil {
				addFamily(pids, child)
			}
		}
	}
}

// used returns the processor time of a process.
func used(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, which ends with the last parenthesis, is field 2.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// resident returns the memory of a process and of all that it has started.
func resident(pid int) (sum uint64, err error) {
	pids := map[int]bool{}
	addFamily(pids, pid)
	for p := range pids {
		m, err := memoryOf(p)
		if err != nil {
			return 0, err
		}
		sum += m
	}
	return sum, nil
}

// memoryOf returns the proportional share of the memory of a process: pages that
// it shares with its children count once.
func memoryOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	return kibibytes(string(text), "Pss:")
}

// kernelMemory returns what the kernel has allocated for itself, as far as rules
// and sockets are in it.
func kernelMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return kibibytes(string(text), "SUnreclaim:", "Percpu:", "VmallocUsed:")
}

// kibibytes adds up lines of a table of /proc, in bytes.
func kibibytes(table string, keys ...string) (sum uint64, err error) {
	for line := range strings.Lines(table) {
		for _, key := range keys {
			if f := strings.Fields(line); len(f) > 1 && f[0] == key {
				n, err := strconv.ParseUint(f[1], 10, 64)
				if err != nil {
					return 0, err
				}
				sum += n << 10
			}
		}
	}
	return sum, nil
}
