package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// plan is what a run of the program measures.
type plan struct {
	nftproxy     string // path of the program
	dir          string // for files
	sizes        []int  // numbers of endpoints
	intervals    []time.Duration
	rounds, runs int
}

// found is what one daemon does.
type found struct {
	checks    []float64 // in a second
	processor []float64 // seconds in a second
	sockets   []float64 // that were open, at each look
	memory    []uint64
}

func (p *plan) measure(ctx context.Context) (all []results.Record, err error) {
	for _, endpoints := range p.sizes {
		for _, interval := range append([]time.Duration{0}, p.intervals...) {
			f := &found{}
			for range p.runs {
				if err := p.one(ctx, endpoints, interval, f); err != nil {
					return nil, fmt.Errorf("%d endpoints, interval %v: %w", endpoints, interval, err)
				}
			}
			r := f.record(endpoints, interval)
			fmt.Printf("%d endpoints, interval %v: %.0f checks/s, %.1f %% of a core, %s, at most %.0f sockets\n", endpoints, interval,
				r.PerSecond.P50, 100*r.Processor.P50, report.Bytes(float64(r.Memory.Resident)), r.Sockets.Max)
			all = append(all, r)
		}
	}
	return all, nil
}

// one measures a daemon in a laboratory of its own.
func (p *plan) one(ctx context.Context, endpoints int, interval time.Duration, f *found) (err error) {
	l, err := newLab()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.start(ctx, p, endpoints, interval); err != nil {
		return err
	}
	enough := func(checks int64) func() bool { return func() bool { return l.accepted.Load() >= checks } }
	if interval > 0 {
		// The first checks of all endpoints are made together, and later ones are spread.
		if err := l.await(ctx, "a check of each endpoint", enough(2*int64(endpoints))); err != nil {
			return err
		}
	}
	pid, before, began := l.daemon.Process.Pid, l.accepted.Load(), time.Now()
	used, err := results.ProcessorTime(pid)
	if err != nil {
		return err
	}
	reached := enough(before + int64(p.rounds*endpoints))
	if interval == 0 {
		until := began.Add(time.Duration(p.rounds) * p.intervals[0])
		reached = func() bool { return time.Now().After(until) }
	}
	err = l.await(ctx, "as many checks as rounds", func() bool {
		f.sockets = append(f.sockets, float64(sockets(pid)))
		return reached()
	})
	if err != nil {
		return err
	}
	return f.add(pid, time.Since(began), l.accepted.Load()-before, used)
}

// add adds what a daemon has done in some time.
func (f *found) add(pid int, took time.Duration, checks int64, usedBefore time.Duration) error {
	used, err := results.ProcessorTime(pid)
	if err != nil {
		return err
	}
	memory, err := results.MemoryOf(pid)
	f.checks = append(f.checks, float64(checks)/took.Seconds())
	f.processor = append(f.processor, (used-usedBefore).Seconds()/took.Seconds())
	f.memory = append(f.memory, memory.Resident)
	return err
}

func (f *found) record(endpoints int, interval time.Duration) results.Record {
	return results.Record{
		Program: results.Nftproxy, Scenario: "tcp", Services: endpoints / perService, Endpoints: perService, Operation: results.HealthChecks,
		Period: interval.Seconds(), PerSecond: results.Values(f.checks), Processor: results.Values(f.processor),
		Sockets: results.Values(f.sockets), Memory: &results.Memory{Resident: results.Median(f.memory...)},
	}
}

// sockets returns how many sockets a process has open.
func sockets(pid int) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if to, _ := os.Readlink(f); strings.HasPrefix(to, "socket:") { // else it was closed meanwhile
			n++
		}
	}
	return n
}
