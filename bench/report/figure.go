package report

import (
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/bench/plot"
	"github.com/nftproxy/nftproxy/bench/results"
)

// Figure is a plot with the name of its file, without extension.
type Figure struct {
	Name string
	Plot *plot.Plot
}

// colours of the most frequent subjects; others share one.
var colours = map[subject]int{
	{results.Nftproxy, results.FromSnapshot}:  0,
	{results.Nftproxy, results.FromWrite}:     2,
	{results.Nftproxy, results.FromProcess}:   2,
	{results.Nftproxy, ""}:                    2,
	{results.KubeProxy, results.FromWrite}:    1,
	{results.KubeProxy, results.FromProcess}:  1,
	{results.KubeProxy, ""}:                   1,
	{results.KubeProxy, results.FromSnapshot}: 3,
}

// Figures returns the plots of how costs grow with the number of Services.
func Figures(files []*results.File) []Figure {
	services := plot.Axis{Label: "Services of 4 endpoints (log scale)", Log: true, Format: Count}
	logTime := plot.Axis{Label: "time, median (log scale)", Log: true, Format: tickSeconds}
	memory := plot.Axis{Label: "resident memory (MiB)", Format: Count}
	return []Figure{
		{"replace-endpoint", &plot.Plot{
			Title: "One endpoint replaced, until the kernel has it", X: services, Y: logTime,
			Lines: lines(files, seconds, results.ReplaceEndpoint),
		}},
		{"cold-start", &plot.Plot{
			Title: "First sync of a node without rules", X: services, Y: logTime,
			Lines: lines(files, seconds, results.ColdStart),
		}},
		{"change-service", &plot.Plot{
			Title: "A Service added or scaled up, until the kernel has it", X: services, Y: logTime,
			Lines: lines(files, seconds, results.AddService, results.ScaleUp),
		}},
		{"memory", &plot.Plot{
			Title: "Resident memory after the changes", X: services, Y: memory,
			Lines: lines(files, residentMebibytes, results.MemoryUse),
		}},
		failoverFigure(files),
	}
}

// tickSeconds writes a time that is a power of ten.
func tickSeconds(s float64) string { return strings.Replace(Seconds(s), ".0 ", " ", 1) }

// residentMebibytes gives an axis of memory round numbers.
func residentMebibytes(r *results.Record) (float64, bool) {
	b, ok := resident(r)
	return b / (1 << 20), ok
}

// lines returns a line for each operation of each subject. The second operation
// is dashed.
func lines(files []*results.File, value func(*results.Record) (float64, bool), operations ...results.Operation) []plot.Line {
	var out []plot.Line
	for i, op := range operations {
		all := curves(files, op, value)
		for _, who := range slices.SortedFunc(maps.Keys(all), subject.compare) {
			name := who.String()
			switch {
			case op == results.MemoryUse && who.from == results.FromSnapshot:
				name = string(who.program) + ", without a client of the API server"
			case len(operations) > 1:
				name += ": " + string(op)
			}
			out = append(out, plot.Line{Name: name, Points: all[who], Colour: colours[who], Dashed: i > 0})
		}
	}
	return out
}
