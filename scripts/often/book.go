package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// record is the runs of a package with the same sources. What it depends on may have changed between them.
type record struct {
	Package  string  `json:"package"`
	First    string  `json:"first,omitempty"` // commit of the first run
	Commit   string  `json:"commit"`          // of the last run
	Hash     string  `json:"hash"`            // of the package's files
	Built    string  `json:"built,omitempty"` // hash of all that the last run was built of
	Race     bool    `json:"race"`
	Load     int     `json:"load"` // busy processes beside the runs, the fewest
	Runs     int     `json:"runs"`
	Failures int     `json:"failures"`
	Seconds  float64 `json:"seconds"` // of all runs
	// Runs of earlier sources.
	EarlierRuns     int `json:"earlierRuns,omitempty"`
	EarlierFailures int `json:"earlierFailures,omitempty"`
}

// book is the file of results. It is written after each run.
type book struct {
	path    string
	mu      sync.Mutex
	records map[string]*record // by package
	each    map[string]float64 // seconds of a run of earlier sources
}

func readBook(path string) (*book, error) {
	b := &book{path: path, records: make(map[string]*record), each: make(map[string]float64)}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	var records []*record
	if err := json.Unmarshal(text, &records); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, r := range records {
		b.records[r.Package] = r
	}
	return b, nil
}

// update begins new records for packages that have changed, and drops those of packages that are gone.
func (b *book) update(all []suite) {
	records := make(map[string]*record)
	for _, s := range all {
		r := b.records[s.name]
		if r == nil || r.Hash != s.hash || r.Race != s.race {
			r = &record{Package: s.name, Hash: s.hash, Race: s.race}
		}
		if old := b.records[s.name]; old != nil && old != r {
			r.EarlierRuns, r.EarlierFailures = old.EarlierRuns+old.Runs, old.EarlierFailures+old.Failures
			b.each[s.name] = old.secondsEach()
		}
		records[s.name] = r
	}
	b.records = records
}

func (r *record) secondsEach() float64 { return r.Seconds / max(1, float64(r.Runs)) }

// secondsEach returns how long a run of a package takes, or 0 if that is not known.
func (b *book) secondsEach(s suite) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.records[s.name]; r.Runs > 0 {
		return r.secondsEach()
	}
	return b.each[s.name]
}

// add counts a run and writes the file.
func (b *book) add(s suite, commit string, load int, failed bool, seconds float64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[s.name]
	if r.Runs == 0 || load < r.Load {
		r.Load = load
	}
	if r.Runs == 0 {
		r.First = commit
	}
	r.Runs++
	r.Commit, r.Built = commit, s.built
	r.Seconds = float64(int((r.Seconds+seconds)*10)) / 10
	if failed {
		r.Failures++
	}
	return b.write()
}

// write replaces the file, with a line for each package.
func (b *book) write() error {
	var lines []string
	for _, r := range b.records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	next := b.path + ".next"
	if err := os.WriteFile(next, []byte("[\n"+strings.Join(lines, ",\n")+"\n]\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, b.path)
}

// missing returns how often a package has to run.
func (b *book) missing(s suite) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, s.wanted-b.records[s.name].Runs)
}

// summarize prints packages that failed or lack runs, and reports whether there is none that failed.
func (b *book) summarize(out io.Writer, all []suite) (clean bool) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	runs, failures, outdated := 0, 0, 0
	fmt.Fprintln(w, "\npackage\truns\tfailed\tseconds each")
	for _, s := range all {
		r := b.records[s.name]
		runs, failures = runs+r.Runs, failures+r.Failures
		if r.Runs > 0 && r.Built != s.built {
			outdated++
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%d\t%.1f\n", s.name, r.Runs, s.wanted, r.Failures, r.secondsEach())
	}
	_ = w.Flush() // the table may be cut off; the file has the results
	fmt.Fprintf(out, "\n%d runs of %d packages, %d failed; %s has them\n", runs, len(all), failures, b.path)
	if outdated > 0 {
		fmt.Fprintf(out, "packages whose dependencies have changed since: %d\n", outdated)
	}
	return failures == 0
}
