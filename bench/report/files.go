package report

import "github.com/nftproxy/nftproxy/bench/results"

// fileOperations are what nftproxy does with a file, in the order in which it is measured.
var fileOperations = []results.Operation{results.FileStart, results.FileStatus, results.FileEdits, results.FileMistake}

// filesTable has the memory after each of them, and what it costs.
func filesTable(files []*results.File) *grid {
	all, last := placesOfFiles(files)
	g := &grid{head: []string{"one file", "after", "processor time of one", "memory", "anonymous", "at rest", "anonymous"}}
	for _, s := range all {
		for _, op := range fileOperations {
			r := last[place{s, op}]
			if r == nil {
				continue
			}
			name := scene{"", s.services, s.endpoints}.String()
			if s.name != "" {
				name += ", `" + s.name + "`"
			}
			g.add(name, string(op), Seconds(r.Cost.P50), known(r.Memory.Resident), known(r.Memory.Anonymous), known(r.Rested.Resident), known(r.Rested.Anonymous))
		}
	}
	return g
}

// placesOfFiles returns the sizes of files that are measured, and the record of each operation.
func placesOfFiles(files []*results.File) (all []scene, last map[place]*results.Record) {
	order, last := latest(files, func(r *results.Record) (place, bool) {
		return place{sceneOf(r), r.Operation}, r.Cost != nil && r.Memory != nil && r.Rested != nil
	})
	for _, p := range order {
		if p.operation == results.FileStart {
			all = append(all, p.scene)
		}
	}
	return all, last
}
