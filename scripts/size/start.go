package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// startOf runs the program several times, and does nothing with it.
func startOf(program string, runs int) (results.Record, error) {
	var took, used []time.Duration
	var most uint64
	for range runs {
		cmd := exec.Command(program, "version")
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return results.Record{}, fmt.Errorf("run %s version: %w", program, err)
		}
		took = append(took, time.Since(began))
		used = append(used, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		most = max(most, uint64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)<<10)
	}
	return results.Record{
		Program: results.Nftproxy, Operation: results.ProgramStart, Seconds: results.Durations(took), Cost: results.Durations(used),
		Memory: &results.Memory{Peak: most},
	}, nil
}

// initialized matches a line of the Go runtime about the initialization of a package, such as
// "init net/http @1.2 ms, 0.10 ms clock, 15072 bytes, 95 allocs".
var initialized = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes, (\d+) allocs$`)

// mostInits is how many packages have a record.
const mostInits = 8

// initsOf returns the packages whose initialization allocates most, and the sum of all. The
// runtime does not mention packages without such work.
func initsOf(program string, runs int) ([]results.Record, error) {
	times, work := map[string][]float64{}, map[string]*results.Work{}
	var sums []float64
	var all results.Work
	for range runs {
		cmd := exec.Command(program, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace bytes.Buffer
		if cmd.Stderr = &trace; cmd.Run() != nil || !initialized.Match(trace.Bytes()) {
			return nil, fmt.Errorf("trace the start of %s: got %.500s", program, &trace)
		}
		sum := 0.0
		all = results.Work{}
		for _, m := range initialized.FindAllSubmatch(trace.Bytes(), -1) {
			ms, _ := strconv.ParseFloat(string(m[2]), 64)
			allocated, _ := strconv.ParseFloat(string(m[3]), 64)
			count, _ := strconv.ParseFloat(string(m[4]), 64)
			name := string(m[1])
			times[name] = append(times[name], ms/1e3)
			work[name] = &results.Work{Allocations: count, AllocatedBytes: allocated}
			sum, all.Allocations, all.AllocatedBytes = sum+ms/1e3, all.Allocations+count, all.AllocatedBytes+allocated
		}
		sums = append(sums, sum)
	}
	names := make([]string, 0, len(work))
	for name := range work {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(work[b].AllocatedBytes, work[a].AllocatedBytes), cmp.Compare(a, b))
	})
	out := []results.Record{initOf(fmt.Sprintf("all %d packages with work", len(names)), sums, &all)}
	for _, name := range names[:min(mostInits, len(names))] {
		out = append(out, initOf(name, times[name], work[name]))
	}
	return out, nil
}

func initOf(name string, seconds []float64, work *results.Work) results.Record {
	return results.Record{Program: results.Nftproxy, Operation: results.ProgramInit, Scenario: name, Seconds: results.Values(seconds), Work: work}
}
