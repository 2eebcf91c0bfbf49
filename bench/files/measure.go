package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// plan is what a run of the program measures.
type plan struct {
	nftproxy string // path of the program
	services int
	rest     time.Duration // before the second look at the memory
	runs     int
}

// edits is how many there are in a step.
const edits = 10

// step is something that the daemon does between two looks at its memory.
type step struct {
	operation results.Operation
	times     int
	do        func(d *daemon, ctx context.Context, i int) error
}

var steps = []step{
	{results.FileStart, 1, func(*daemon, context.Context, int) error { return nil }}, // is over
	{results.FileStatus, 1, func(d *daemon, _ context.Context, _ int) error { return d.status() }},
	{results.FileEdits, edits, (*daemon).edit},
	{results.FileMistake, 1, func(d *daemon, ctx context.Context, _ int) error { return d.mistake(ctx, edits) }},
}

// found is what all runs have found of a step.
type found struct {
	processor          []float64 // seconds for each time
	now, rested        []uint64
	anonymous, restedA []uint64
}

func (p *plan) measure(ctx context.Context) (all []results.Record, err error) {
	for _, flag := range []string{"", isolated} {
		sums := make([]found, len(steps))
		for range p.runs {
			if err := p.one(ctx, flag, sums); err != nil {
				return nil, fmt.Errorf("run -f FILE %s: %w", flag, err)
			}
		}
		for i, s := range steps {
			r := p.record(flag, s, &sums[i])
			fmt.Printf("run -f FILE %s, after %s: %s of the processor for each, %s resident, %s anonymous; %v later %s, %s\n", flag, s.operation,
				report.Seconds(r.Cost.P50), bytesOf(r.Memory.Resident), bytesOf(r.Memory.Anonymous), p.rest, bytesOf(r.Rested.Resident), bytesOf(r.Rested.Anonymous))
			all = append(all, r)
		}
	}
	return all, nil
}

func bytesOf(n uint64) string { return report.Bytes(float64(n)) }

// one measures a daemon, and adds what it finds.
func (p *plan) one(ctx context.Context, flag string, sums []found) (err error) {
	d, err := p.newDaemon(ctx, flag)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	used := time.Duration(0)
	for i, s := range steps {
		for j := range s.times {
			if err := s.do(d, ctx, j); err != nil {
				return fmt.Errorf("%s: %w", s.operation, err)
			}
			now, err := d.settle(ctx)
			if err != nil {
				return err
			}
			sums[i].processor, used = append(sums[i].processor, (now-used).Seconds()), now
		}
		if used, err = d.look(ctx, p.rest, &sums[i]); err != nil {
			return err
		}
	}
	return nil
}

// look adds the memory now and after a rest, and returns the processor time up to then.
func (d *daemon) look(ctx context.Context, rest time.Duration, f *found) (used time.Duration, err error) {
	now, err := results.MemoryOf(d.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(rest):
	}
	if used, err = d.settle(ctx); err != nil {
		return 0, err
	}
	rested, err := results.MemoryOf(d.cmd.Process.Pid)
	f.now, f.anonymous = append(f.now, now.Resident), append(f.anonymous, now.Anonymous)
	f.rested, f.restedA = append(f.rested, rested.Resident), append(f.restedA, rested.Anonymous)
	return used, err
}

func (p *plan) record(flag string, s step, f *found) results.Record {
	return results.Record{
		Program: results.Nftproxy, Scenario: flag, Services: p.services, Endpoints: 4, Operation: s.operation, Cost: results.Values(f.processor),
		Memory: &results.Memory{Resident: results.Median(f.now...), Anonymous: results.Median(f.anonymous...)},
		Rested: &results.Memory{Resident: results.Median(f.rested...), Anonymous: results.Median(f.restedA...)},
	}
}
