package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/model"
)

// plan is what a run of the program measures.
type plan struct {
	nftproxy     string // path of the program
	dir          string // for files
	features     []*feature
	family       model.Family
	services     int
	runs, rounds int
	connections  int // of each row in a round
}

// found is what was measured of a row.
type found struct {
	costs, rates []float64 // seconds of processor time, connections a second; by round
	ratios       []float64 // of the costs, to the baseline in the same round
	added        []float64 // seconds
}

// selectFeatures returns the rows with some names and what they are compared with, or all.
func selectFeatures(names string) ([]*feature, error) {
	wanted := make(map[string]bool)
	for n := range strings.SplitSeq(names, ",") {
		wanted[n] = n != ""
	}
	known := make(map[string]bool)
	for i := range features {
		f := &features[i]
		known[f.name] = true
		if wanted[f.name] && f.beside != "" {
			wanted[f.beside] = true
		}
	}
	var out []*feature
	for i := range features {
		if names == "" || wanted[features[i].name] {
			out = append(out, &features[i])
		}
	}
	for n, w := range wanted {
		if w && !known[n] {
			return nil, fmt.Errorf("no row %q", n)
		}
	}
	return out, nil
}

func (p *plan) measure(ctx context.Context) (map[string]*found, error) {
	all := make(map[string]*found)
	for _, f := range p.features {
		all[f.name] = &found{}
	}
	for run := range p.runs {
		began := time.Now()
		err := p.run(ctx, run, all)
		if run > 0 && errors.Is(err, context.Canceled) {
			fmt.Fprintf(os.Stderr, "interrupted: the results are those of %d runs\n", run)
			break
		}
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "run %d of %d: %.1f s\n", run+1, p.runs, time.Since(began).Seconds())
	}
	return all, nil
}

// run makes the laboratories and measures all rounds.
func (p *plan) run(ctx context.Context, run int, all map[string]*found) (err error) {
	var labs []*lab
	defer func() {
		for _, l := range labs {
			err = errors.Join(err, l.close())
		}
	}()
	for _, f := range p.features {
		l, err := p.newLab(f)
		if err != nil {
			return err
		}
		labs = append(labs, l)
	}
	for round := range p.rounds {
		// Another order in each round, the same ones in each run of the program.
		for _, i := range rand.New(rand.NewPCG(uint64(run), uint64(round))).Perm(len(labs)) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := p.one(labs[i]); err != nil {
				return fmt.Errorf("%s: %w", labs[i].name, err)
			}
		}
	}
	p.add(labs, all)
	return nil
}

func (p *plan) one(l *lab) error {
	// The caches of the processor are those of another row.
	if _, err := l.connect(p.connections/10 + 1); err != nil {
		return err
	}
	c, err := l.connect(p.connections)
	l.costs = append(l.costs, c)
	return err
}

// add puts what the laboratories of one run measured to the rest.
func (p *plan) add(labs []*lab, all map[string]*found) {
	for _, l := range labs {
		base := l
		if i := slices.IndexFunc(labs, func(o *lab) bool { return o.name == l.beside }); i >= 0 {
			base = labs[i]
		}
		f := all[l.name]
		for round, c := range l.costs {
			own, of := c.Processor.Seconds(), base.costs[round].Processor.Seconds()
			f.costs = append(f.costs, own)
			f.rates = append(f.rates, 1/c.Wall.Seconds())
			f.ratios = append(f.ratios, own/of)
			f.added = append(f.added, own-of)
		}
	}
}

// table returns what was found as text: medians of all rounds.
func (p *plan) table(all map[string]*found) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tcompared with\tprocessor time\tadded\tratio\tconnections/s")
	for _, f := range p.features {
		r, beside, added, ratio := all[f.name], f.beside, "", ""
		if beside != "" {
			added = fmt.Sprintf("%+.2f µs", results.Median(r.added...)*1e6)
			ratio = fmt.Sprintf("%.3f", results.Median(r.ratios...))
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f µs\t%s\t%s\t%.0f\n", f.name, beside, results.Median(r.costs...)*1e6, added, ratio, results.Median(r.rates...))
	}
	_ = w.Flush() // to memory
	return text.String()
}

// records returns the results.
func (p *plan) records(all map[string]*found) (out []results.Record) {
	for _, f := range p.features {
		r := all[f.name]
		record := results.Record{
			Program: results.Nftproxy, Scenario: f.name, Services: p.services, Endpoints: endpoints, Operation: results.FeatureConnection,
			Cost: results.Values(r.costs), PerSecond: results.Values(r.rates),
		}
		if f.beside != "" {
			record.Ratios = map[results.Operation]*results.Distribution{results.Operation(f.beside): results.Values(r.ratios)}
			record.Added = results.Values(r.added)
		}
		out = append(out, record)
	}
	return out
}
