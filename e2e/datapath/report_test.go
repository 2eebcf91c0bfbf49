package datapath

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// dataPathTable returns a printable table: medians, the range of the rounds,
// and ratios to the handwritten rule.
func dataPathTable(paths []*dataPath) string {
	one := paths[slices.IndexFunc(paths, func(p *dataPath) bool { return p.program == results.OneRule })]
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tservices\tconnections/s\tfrom\tto\tratio\tround trips/s\tfrom\tto\tratio\tp50\tp95\t")
	for _, p := range paths {
		latency := results.Durations(p.latencies)
		fmt.Fprintf(w, "%s\t%d\t%s\t%.3f\t%s\t%.3f\t%.1f µs\t%.1f µs\t\n", p.program, p.services,
			spread(p.connections), ratio(p.connections, one.connections),
			spread(p.trips), ratio(p.trips, one.trips), latency.P50*1e6, latency.P95*1e6)
	}
	_ = w.Flush() // to memory
	return text.String()
}

func spread(rounds []float64) string {
	return fmt.Sprintf("%.0f\t%.0f\t%.0f", results.Median(rounds...), slices.Min(rounds), slices.Max(rounds))
}

// ratio returns the median of the ratios of rounds: what slows down a round
// slows down all variants.
func ratio(rounds, base []float64) float64 { return results.Median(ratios(rounds, base)...) }

func ratios(rounds, base []float64) []float64 {
	out := make([]float64, len(rounds))
	for i := range rounds {
		out[i] = rounds[i] / base[i]
	}
	return out
}

// writeDataPaths writes the figures to the file that RESULTS names.
func writeDataPaths(b *testing.B, paths []*dataPath) {
	b.Helper()
	r := testbed.NewReport(b)
	for _, p := range paths {
		record := results.Record{Program: p.program, Services: p.services, Endpoints: min(p.services, 1)}
		record.Operation, record.PerSecond = results.Connect, results.Values(p.connections)
		r.File.Records = append(r.File.Records, record)
		record.Operation, record.PerSecond = results.RoundTrip, results.Values(p.trips)
		record.Seconds = results.Durations(p.latencies)
		r.File.Records = append(r.File.Records, record)
	}
	r.Write(b)
}
