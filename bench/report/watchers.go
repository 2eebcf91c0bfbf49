package report

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/bench/results"
)

// watched is a measurement of the watchers of an API server.
type watched struct {
	operation          results.Operation
	watchers, services int
}

// watchOperations are those of watchers, in the order in which people read them.
var watchOperations = []results.Operation{
	results.WatchReplace, results.WatchRollout, results.WatchRestart, results.WatchRestart5, results.WatchRestart30,
	results.WatchList, results.WatchPlainList, results.WatchResume, results.WatchIdle,
}

// watchRecords returns what the watchers of a program cost the API server.
func watchRecords(files []*results.File, p results.Program) ([]watched, map[watched]*results.Record) {
	order, last := latest(files, func(r *results.Record) (watched, bool) {
		return watched{r.Operation, r.Watchers, r.Services}, r.Program == p && r.Server != nil
	})
	slices.SortFunc(order, func(a, b watched) int {
		return cmp.Or(cmp.Compare(slices.Index(watchOperations, a.operation), slices.Index(watchOperations, b.operation)),
			cmp.Compare(a.services, b.services), cmp.Compare(a.watchers, b.watchers))
	})
	return order, last
}

// watchersTable has what watchers cost the API server.
func watchersTable(files []*results.File) *grid {
	g := &grid{head: []string{"operation", "services", "watchers", "processor time", "for each watcher", "bytes sent", "for each watcher",
		"until a watcher is done: median", "last", "answers 429"}}
	order, last := watchRecords(files, results.Nftproxy)
	for _, w := range order {
		r, n := last[w], float64(w.watchers)
		row := []string{string(w.operation), Count(float64(w.services)), Count(n), Seconds(r.Server.CPU), Seconds(r.Server.CPU / n),
			Bytes(r.Server.Bytes), Bytes(r.Server.Bytes / n), "", "", Count(float64(r.Server.Rejected))}
		if r.Seconds != nil {
			row[7], row[8] = Seconds(r.Seconds.P50), Seconds(r.Seconds.Max)
		}
		g.add(row...)
	}
	return g
}

// watchersComparedTable puts the requests of both proxies side by side.
func watchersComparedTable(files []*results.File) *grid {
	g := &grid{head: []string{"operation", "services", "watchers", "processor time, kube-proxy", "nftproxy", "bytes sent, kube-proxy", "nftproxy"}}
	order, theirs := watchRecords(files, results.KubeProxy)
	_, ours := watchRecords(files, results.Nftproxy)
	for _, w := range order {
		if their, our := theirs[w], ours[w]; our != nil {
			g.add(string(w.operation), Count(float64(w.services)), Count(float64(w.watchers)), Seconds(their.Server.CPU), Seconds(our.Server.CPU),
				Bytes(their.Server.Bytes), Bytes(our.Server.Bytes))
		}
	}
	return g
}

// watchersMemoryTable has the memory of the API server.
func watchersMemoryTable(files []*results.File) *grid {
	g := &grid{head: []string{"services", "watchers", "most while all restart", "a minute later"}}
	order, last := watchRecords(files, results.Nftproxy)
	for _, w := range order {
		after := last[watched{results.WatchIdle, w.watchers, w.services}]
		if w.operation == results.WatchRestart && after != nil {
			g.add(Count(float64(w.services)), Count(float64(w.watchers)), Bytes(float64(last[w].Memory.Peak)), Bytes(float64(after.Memory.Resident)))
		}
	}
	return g
}

// about returns the files with measurements of watchers, or those without.
func about(files []*results.File, watchers bool) (out []*results.File) {
	for _, f := range files {
		if slices.ContainsFunc(f.Records, func(r results.Record) bool { return r.Server != nil }) == watchers {
			out = append(out, f)
		}
	}
	return out
}
