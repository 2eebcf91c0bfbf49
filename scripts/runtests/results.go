package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// results is what tests have said so far.
type results struct {
	packages map[string]*packageResult   // by title
	builds   map[string]*strings.Builder // messages of the compiler, by what it was to compile
	messages strings.Builder             // of the go command
	goFailed bool                        // a go command failed, if only because a test did
	used     time.Duration               // of processors, by tests and the compiler
}

func newResults() *results {
	return &results{packages: make(map[string]*packageResult), builds: make(map[string]*strings.Builder)}
}

// packageResult is a package, or one of the programs that run its tests, over all runs.
type packageResult struct {
	name        string
	job         job                    // what ran its tests first
	tests       map[string]*testResult // with subtests
	output      strings.Builder        // of no test
	failed      bool                   // the last run
	failedBuild string                 // what did not compile
	elapsed     float64                // seconds, of all runs
	ended       ended
}

// ended is how a run of the program of tests ended.
type ended struct {
	complete bool // the program has said itself whether its tests passed
	early    bool // it failed before that, after it had begun tests
}

// testResult is a test or subtest.
type testResult struct {
	name    string
	state   string // "run", "pause", "pass", "fail" or "skip"
	output  strings.Builder
	elapsed float64 // seconds
	blamed  bool    // it has ended a run early
}

// add notes an event.
func (r *results) add(e event) {
	switch {
	case e.Action == "build-output":
		b := r.builds[e.ImportPath]
		if b == nil {
			b = new(strings.Builder)
			r.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
	case e.Action == "build-fail": // the package says it once more
	case e.Package == "":
		r.messages.WriteString(e.Output)
	default:
		r.find(e.Package, e.job).add(e)
	}
}

// find returns the results of a package or one of its programs.
func (r *results) find(name string, j job) *packageResult {
	title := titleOf(name, j)
	p := r.packages[title]
	if p == nil {
		p = &packageResult{name: name, job: j, tests: make(map[string]*testResult)}
		r.packages[title] = p
	}
	return p
}

func (p *packageResult) title() string { return titleOf(p.name, p.job) }

// titleOf returns what the user sees.
func titleOf(name string, j job) string {
	if j.shard == "" {
		return name
	}
	return name + " (" + j.shard + ")"
}

func (p *packageResult) add(e event) {
	if e.Test != "" {
		p.addTest(e)
		return
	}
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
		p.ended.complete = p.ended.complete || e.Output == "PASS\n" || e.Output == "FAIL\n"
	case "pass", "skip", "fail":
		p.failed = e.Action == "fail"
		p.failedBuild = e.FailedBuild
		p.elapsed += e.Elapsed
		p.ended.early = p.failed && e.FailedBuild == "" && !p.ended.complete && len(p.tests) > 0
	}
}

func (p *packageResult) addTest(e event) {
	t := p.tests[e.Test]
	if t == nil {
		t = &testResult{name: e.Test}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "cont":
		t.state = "run"
	case "run":
		t.output.Reset() // an earlier run did not end
		t.state = e.Action
	default:
		t.state = e.Action
		t.elapsed = e.Elapsed
	}
}

// settled returns the names of tests that have ended, without subtests.
func (p *packageResult) settled() (names []string) {
	for _, t := range p.sorted() {
		if t.state != "run" && t.state != "pause" && !strings.Contains(t.name, "/") {
			names = append(names, t.name)
		}
	}
	return names
}

func (p *packageResult) sorted() []*testResult {
	return slices.SortedFunc(maps.Values(p.tests), func(a, b *testResult) int { return cmp.Compare(a.name, b.name) })
}

// blame makes the tests fail that have ended a run early, and returns how many: one that has failed with
// a panic, or else all that ran when the program ended. It counts each test once.
func (p *packageResult) blame() (blamed int) {
	for _, t := range p.sorted() {
		if t.state == "fail" && !t.blamed && strings.Contains(t.output.String(), "\npanic: ") {
			t.blamed = true
			blamed++
		}
	}
	if blamed > 0 {
		return blamed
	}
	for _, t := range p.sorted() {
		if t.state == "run" {
			t.state, t.blamed = "fail", true
			t.output.WriteString("    the program of tests ended while this test ran\n")
			blamed++
		}
	}
	return blamed
}

// endedEarly returns the packages whose program ended early.
func (r *results) endedEarly() (out []*packageResult) {
	for _, p := range r.sorted() {
		if p.ended.early {
			out = append(out, p)
		}
	}
	return out
}

func (r *results) sorted() []*packageResult {
	return slices.SortedFunc(maps.Values(r.packages), func(a, b *packageResult) int { return cmp.Compare(a.title(), b.title()) })
}
