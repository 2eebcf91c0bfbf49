// Command tables measures all that the pages show, one row of rows.go after the other, and
// writes the results, tables and plots:
//
//	tables [-only NAME,KIND,...] [-quick] [-runs N]
//
// A row whose results are of the same source is skipped. With -quick each row is tried with
// a few Services, in a minute or two; that writes nothing below docs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/command"
	"github.com/nftproxy/nftproxy/bench/results"
)

func main() { command.Main("tables", run) }

const (
	documents = "docs/performance"
	tries     = "bin/tables"
)

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("tables", flag.ContinueOnError)
	only := flags.String("only", "", "`rows` or kinds of rows, separated by commas (default: all)")
	quick := flags.Bool("quick", false, "try each row with few Services, and leave docs alone")
	runs := flags.String("runs", "", "`times` that each row is measured, where it can be repeated")
	list := flags.Bool("list", false, "print the rows, and measure nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil || *list {
		print(chosen)
		return err
	}
	dir := documents
	if *quick {
		dir = tries
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var failed []error
	for _, r := range chosen {
		if err := r.measure(ctx, filepath.Join(dir, r.file), *quick, *runs); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.name, err))
		}
		if ctx.Err() != nil {
			return errors.Join(failed...)
		}
	}
	return errors.Join(append(failed, report(ctx, *quick))...)
}

// choose returns the rows of these names and kinds.
func choose(names string) (out []row, err error) {
	if names == "" {
		return rows, nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == name || r.kind == name }) {
			return rows, fmt.Errorf("no row or kind %q: use one of these", name)
		}
	}
	for _, r := range rows {
		if slices.Contains(wanted, r.name) || slices.Contains(wanted, r.kind) {
			out = append(out, r)
		}
	}
	return out, nil
}

func print(rows []row) {
	for _, r := range rows {
		fmt.Printf("%-18s %-10s %s, make %s %s\n", r.name, r.kind, r.takes, r.target, r.full)
	}
}

// measure measures a row, unless its file is of this source.
func (r *row) measure(ctx context.Context, file string, quick bool, runs string) error {
	variables := r.full
	if quick {
		variables = r.quick
	} else if commit := r.measuredAt(ctx, file); commit != "" {
		fmt.Printf("%s: skipped: %s is of commit %s, and nothing that it measures has changed since\n", r.name, file, commit)
		return nil
	}
	fmt.Printf("%s: make %s %s (%s)\n", r.name, r.target, variables, r.takes)
	began := time.Now()
	// The shell takes quotes off. Some targets add to a file that is there.
	fresh := file + ".new"
	defer os.Remove(fresh)
	cmd := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("exec make %s %s RESULTS=%s", r.target, variables+runsOf(runs)+version(), fresh))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make %s: %w", r.target, err)
	}
	if _, err := results.Read(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, file); err != nil {
		return err
	}
	fmt.Printf("%s: done after %v\n", r.name, time.Since(began).Round(time.Second))
	return nil
}

// version returns the variable for the version that the source had at first: the results of
// a row before make it dirty.
func version() string {
	v := os.Getenv("VERSION")
	if v == "" {
		return ""
	}
	return " VERSION=" + v
}

// runsOf returns variables for another number of runs; make takes the last one.
func runsOf(runs string) string {
	if runs == "" {
		return ""
	}
	return fmt.Sprintf(" RUNS=%s COMPARE_RUNS=%[1]s", runs)
}

// measuredAt returns the commit that a file of results is of, if what the row measures is
// the same in the files of today; otherwise nothing.
func (r *row) measuredAt(ctx context.Context, file string) string {
	files, err := results.Read(file)
	if err != nil {
		return "" // there is none
	}
	commit := files[0].Versions[string(results.Nftproxy)]
	if i := strings.LastIndex(commit, "-g"); i >= 0 { // v0.1.0-7-g0123abc
		commit = commit[i+2:]
	}
	if commit == "" || !unchanged(ctx, commit, sources) || !unchanged(ctx, commit, r.code) {
		return ""
	}
	return commit
}

// unchanged reports whether files are as in a commit.
func unchanged(ctx context.Context, commit string, paths []string) bool {
	diff := exec.CommandContext(ctx, "git", append([]string{"diff", "--quiet", commit, "--"}, paths...)...)
	return diff.Run() == nil
}

// report writes the tables and plots, or prints the tables of a try.
func report(ctx context.Context, quick bool) error {
	args := []string{"--no-print-directory", "bench-report"}
	name := "make"
	if quick {
		files, err := filepath.Glob(filepath.Join(tries, "*.json"))
		if err != nil {
			return err
		}
		name, args = "go", append([]string{"run", "./bench", "table"}, files...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
