package report

import (
	"github.com/nftproxy/nftproxy/bench/results"
)

// programTable has what the program consists of.
func programTable(files []*results.File) *grid {
	order, last := latest(files, func(r *results.Record) (string, bool) {
		return r.Scenario, r.Operation == results.ProgramSize && r.Part != nil
	})
	var whole int64
	if r := last[results.StrippedProgram]; r != nil {
		whole = r.Part.File
	}
	g := &grid{head: []string{"part", "code", "data", "together", "of the program"}}
	for _, name := range order {
		p := last[name].Part
		together := p.Code + p.Data + p.File
		row := []string{name, known(uint64(p.Code)), known(uint64(p.Data)), Bytes(float64(together)), ""}
		if whole > 0 {
			row[4] = percent(float64(together) / float64(whole))
		}
		g.add(row...)
	}
	return g
}

// initTable has what a start of the program costs that does nothing else.
func initTable(files []*results.File) *grid {
	order, last := latest(files, func(r *results.Record) (string, bool) {
		return r.Scenario, r.Operation == results.ProgramStart || r.Operation == results.ProgramInit
	})
	g := &grid{head: []string{"start", "processor time", "time", "most memory", "allocated", "allocations"}}
	for _, name := range order {
		r := last[name]
		if r.Operation == results.ProgramStart {
			g.add("nftproxy version, all of it", Seconds(r.Cost.P50), "", Bytes(float64(r.Memory.Peak)), "", "")
			continue
		}
		g.add("initialization of "+name, "", Seconds(r.Seconds.P50), "", Bytes(r.Work.AllocatedBytes), Count(r.Work.Allocations))
	}
	return g
}
