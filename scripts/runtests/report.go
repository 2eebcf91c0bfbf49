package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// quiet is how long nothing may be printed before a line says what runs.
const quiet = time.Minute

// progress shows packages as they end, and writes all output into a file.
type progress struct {
	out   io.Writer
	log   io.Writer
	total int       // packages, or programs of these, 0: unknown
	begun []string  // packages whose tests run
	ended int       // packages
	last  time.Time // when the last line was printed
}

func newProgress(out, log io.Writer, parts []part) *progress {
	s := &progress{out: out, log: log, last: time.Now()}
	for _, p := range parts {
		if slices.ContainsFunc(p.packages, func(name string) bool { return strings.Contains(name, "...") }) {
			s.total = 0
			break
		}
		s.total += len(p.packages) + len(p.split)*(shards-1)
	}
	return s
}

// add shows what an event changes. The results have it already.
func (s *progress) add(e event, r *results) {
	io.WriteString(s.log, e.Output) // the summary has what matters most
	title := titleOf(e.Package, e.job)
	switch {
	case e.Test != "" || e.Package == "":
	case e.Action == "start":
		s.begun = append(s.begun, title)
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		s.begun = slices.DeleteFunc(s.begun, func(name string) bool { return name == title })
		s.ended++
		s.last = time.Now()
		fmt.Fprintf(s.out, "%s  %s  %.1f s\n", e.Action, title, e.Elapsed)
		for _, f := range r.packages[title].failures() {
			fmt.Fprintf(s.out, "      %s\n", f.test)
		}
	}
}

// describe says what runs if nothing was printed for a while.
func (s *progress) describe(now time.Time) {
	if now.Sub(s.last) < quiet {
		return
	}
	s.last = now
	doing := "compiling"
	if len(s.begun) > 0 {
		doing = "running " + strings.Join(s.begun, ", ")
	}
	of := ""
	if s.total > 0 {
		of = fmt.Sprintf(" of %d", s.total)
	}
	fmt.Fprintf(s.out, "      %d%s packages have ended; %s\n", s.ended, of, doing)
}

// failure is a test that failed, or a package that failed otherwise.
type failure struct {
	pkg, test string // test is empty for a package
	elapsed   float64
	lines     []string
}

func (f failure) name() string { return strings.TrimSpace(f.pkg + " " + f.test) }

// framing are lines by which the testing package says where a test begins and ends.
var framing = regexp.MustCompile(`^\s*(=== (RUN|PAUSE|CONT|NAME) |--- (PASS|FAIL|SKIP): |-test.shuffle )`)

// said returns the lines of an output that are not framing.
func said(output string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimRight(output, "\n"), "\n"), func(line string) bool {
		return line == "" || framing.MatchString(line)
	})
}

// failures returns the tests that failed. One with subtests is returned if it has said something itself, or
// if none of these failed.
func (p *packageResult) failures() (out []failure) {
	tests := p.sorted()
	for i, t := range tests {
		if t.state != "fail" {
			continue
		}
		lines := said(t.output.String())
		below := slices.ContainsFunc(tests[i+1:], func(sub *testResult) bool {
			return sub.state == "fail" && strings.HasPrefix(sub.name, t.name+"/")
		})
		if len(lines) > 0 || !below {
			out = append(out, failure{p.title(), t.name, t.elapsed, lines})
		}
	}
	if p.failed && len(out) == 0 {
		out = append(out, failure{pkg: p.title(), elapsed: p.elapsed, lines: said(p.output.String())})
	}
	return out
}

// failures returns what failed in all packages, then what did not compile.
func (r *results) failures() (out []failure) {
	compiled := make(map[string]bool) // what did not, by name
	for _, p := range r.sorted() {
		if p.failedBuild == "" {
			out = append(out, p.failures()...)
			continue
		}
		f := failure{pkg: p.title(), lines: []string{"does not compile: " + p.failedBuild}}
		if b := r.builds[p.failedBuild]; b != nil && !compiled[p.failedBuild] {
			compiled[p.failedBuild] = true
			f.lines = append(f.lines, said(b.String())...)
		}
		out = append(out, f)
	}
	if r.goFailed && len(out) == 0 {
		out = append(out, failure{pkg: "go test", lines: said(r.messages.String())})
	}
	return out
}

// skips returns the tests that were skipped, with their reasons.
func (r *results) skips() (out []failure) {
	for _, p := range r.sorted() {
		for _, t := range p.sorted() {
			if t.state == "skip" {
				out = append(out, failure{p.title(), t.name, t.elapsed, said(t.output.String())})
			}
		}
	}
	return out
}

// summarize prints what failed and what was skipped, and reports whether all is well.
func (r *results) summarize(out io.Writer, c config, log string, took time.Duration) (passed bool) {
	failed, skipped := r.failures(), r.skips()
	tests, packages := 0, make(map[string]bool)
	for _, p := range r.packages {
		tests += len(p.settled())
		packages[p.name] = true
	}
	for _, f := range failed {
		fmt.Fprintf(out, "\nFAIL %s (%.1f s)\n%s", f.name(), f.elapsed, indent(f.lines, 10))
	}
	for _, s := range skipped {
		fmt.Fprintf(out, "\nSKIP %s\n%s", s.name(), indent(s.lines, 2))
	}
	passed = len(failed) == 0 && (len(skipped) == 0 || !c.noSkip)
	fmt.Fprintf(out, "\n%s and %s in %.0f s (%.0f s of processors): %s, %d skipped", plural(len(packages), "package"), plural(tests, "test"),
		took.Seconds(), r.used.Seconds(), plural(len(failed), "failure"), len(skipped))
	if !passed {
		fmt.Fprintf(out, "; SHUFFLE=%s repeats the order; all output: %s", c.shuffle, log)
	}
	fmt.Fprintln(out)
	return passed
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// indent returns the first lines, indented, and how many were left out.
func indent(lines []string, most int) string {
	var b strings.Builder
	for _, line := range lines[:min(most, len(lines))] {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	if more := len(lines) - most; more > 0 {
		fmt.Fprintf(&b, "    ... and %s\n", plural(more, "line"))
	}
	return b.String()
}
