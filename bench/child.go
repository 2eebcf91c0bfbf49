package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/nftproxy/nftproxy/bench/results"
)

// job is a measurement in a process of its own, so that its memory is the memory of one
// scenario.
type job struct {
	Scenario scenario
	Repeats  repeats
}

// runJob does the job that is written on in, and writes its result to out.
func runJob(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	found, err := measure(j.Scenario, j.Repeats)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(found)
}

// delegate does a job in a new process of this program.
func delegate(ctx context.Context, j job) ([]series, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, self, jobCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("measure %s: %w", j.Scenario, err)
	}
	var found []series
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return nil, fmt.Errorf("measure %s: %w", j.Scenario, err)
	}
	return found, nil
}

// records sums up the runs of a scenario: all samples of an operation count
// alike, and of values that each run has once the median is taken.
func records(s scenario, runs [][]series) []results.Record {
	var out []results.Record
	for i, first := range runs[0] {
		var seconds []float64
		var work []*results.Work
		var memory []*results.Memory
		for _, run := range runs {
			seconds = append(seconds, run[i].Seconds...)
			work, memory = append(work, run[i].Work), append(memory, run[i].Memory)
		}
		r := results.Record{
			Program: results.Nftproxy, Scenario: s.Name, Services: s.Services, Endpoints: s.Endpoints,
			Operation: first.Operation, From: results.FromSnapshot, Seconds: results.Values(seconds),
		}
		if first.Work != nil {
			r.Work = medianWork(work)
		}
		if first.Memory != nil {
			r.Memory = medianMemory(memory)
		}
		if base, ok := bases[first.Operation]; ok {
			r.Ratios = map[results.Operation]*results.Distribution{base: ratios(runs, first.Operation, base)}
		}
		out = append(out, r)
	}
	return out
}

// bases are the operations that others are compared with in each run.
var bases = map[results.Operation]results.Operation{
	results.ColdStart:       results.KernelAlone,
	results.Restart:         results.ColdStart,
	results.Resume:          results.ColdStart,
	results.ReplaceEndpoint: results.KernelAloneReplace,
}

// ratios returns how many times longer an operation takes than another one in the
// same run.
func ratios(runs [][]series, op, base results.Operation) *results.Distribution {
	var all []float64
	for _, run := range runs {
		took := make(map[results.Operation]float64)
		for _, s := range run {
			if len(s.Seconds) > 0 {
				took[s.Operation] = results.Median(s.Seconds...)
			}
		}
		all = append(all, took[op]/took[base])
	}
	return results.Values(all)
}

func medianWork(all []*results.Work) *results.Work {
	m := median[results.Work, float64]
	return &results.Work{
		Allocations:    m(all, func(w *results.Work) float64 { return w.Allocations }),
		AllocatedBytes: m(all, func(w *results.Work) float64 { return w.AllocatedBytes }),
		Transactions:   m(all, func(w *results.Work) float64 { return w.Transactions }),
		Changes:        m(all, func(w *results.Work) float64 { return w.Changes }),
		NetlinkBytes:   m(all, func(w *results.Work) float64 { return w.NetlinkBytes }),
	}
}

func medianMemory(all []*results.Memory) *results.Memory {
	m := median[results.Memory, uint64]
	return &results.Memory{
		Resident:  m(all, func(m *results.Memory) uint64 { return m.Resident }),
		Peak:      m(all, func(m *results.Memory) uint64 { return m.Peak }),
		HeapInUse: m(all, func(m *results.Memory) uint64 { return m.HeapInUse }),
		Live:      m(all, func(m *results.Memory) uint64 { return m.Live }),
		Started:   m(all, func(m *results.Memory) uint64 { return m.Started }),
	}
}

// median returns the median of one field over all runs.
func median[T any, N float64 | uint64](all []*T, field func(*T) N) N {
	var values []N
	for _, v := range all {
		values = append(values, field(v))
	}
	return results.Median(values...)
}
