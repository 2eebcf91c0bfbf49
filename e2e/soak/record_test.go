package soak

import (
	"os"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// write logs the sum of the run, and adds it to the file that RESULTS names: the pieces of a long run are
// records of one file.
func (s *soak) write(length time.Duration) {
	s.T.Helper()
	sum := s.summary(length)
	s.T.Logf("%d changes, %d disturbances, %d requests, %d lost; process %d in %v: %+v at first, %+v at last, anonymous memory %+.1f MiB an hour",
		sum.Changes, sum.Disturbances, sum.Requests, sum.Lost, s.longest, time.Duration(sum.Watched*float64(time.Second)).Round(time.Second),
		sum.First, sum.Last, sum.Growth/(1<<20))
	path := os.Getenv("RESULTS")
	if path == "" {
		return
	}
	r := testbed.NewReport(s.T)
	if _, err := os.Stat(path); err == nil {
		before, err := results.Read(path)
		if err != nil {
			s.T.Fatal(err)
		}
		r.File.Records = before[0].Records
	}
	r.File.Records = append(r.File.Records, results.Record{
		Program: results.Nftproxy, Services: s.services, Endpoints: mostEndpoints, Operation: results.LongRun, Rate: float64(s.rate), Soak: sum,
	})
	r.Write(s.T)
}

// summary sums up the run.
func (s *soak) summary(length time.Duration) *results.Soak {
	out := &results.Soak{Seconds: length.Seconds(), Changes: s.changes.made()}
	out.Requests, out.Lost = s.load.totals()
	for _, all := range s.took {
		out.Disturbances += len(all)
	}
	own := s.longSeries()
	n := len(own) / leastSamples
	out.Watched = (own[len(own)-1].after - own[0].after).Seconds()
	out.First, out.Last, out.Growth = held(own[:n]), held(own[len(own)-n:]), growth(own)
	return out
}

// held returns medians.
func held(all []sample) results.Held {
	return results.Held{
		Anonymous:  median(all, func(x sample) uint64 { return x.anonymous }),
		Heap:       median(all, func(x sample) uint64 { return x.heap }),
		Files:      median(all, func(x sample) int { return x.files }),
		Goroutines: median(all, sample.others),
	}
}

// growth returns how many anonymous bytes come with each hour, by least squares.
func growth(all []sample) float64 {
	var meanX, meanY, products, squares float64
	for _, x := range all {
		meanX += x.after.Hours() / float64(len(all))
		meanY += float64(x.anonymous) / float64(len(all))
	}
	for _, x := range all {
		d := x.after.Hours() - meanX
		products += d * (float64(x.anonymous) - meanY)
		squares += d * d
	}
	if squares == 0 {
		return 0
	}
	return products / squares
}
