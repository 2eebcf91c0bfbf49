// Command often runs the tests of packages many times beside busy processes, to find those that pass by
// luck. It counts runs and failures in a file, by the files of each package: one that has not changed keeps its
// results, with the commits of the first and the last run, and a command that was interrupted goes on where it was.
// What a package depends on does not count: a change of internal/model would mean thousands of runs. The end says how
// many packages have other dependencies than in their last run.
//
// Usage: often [FLAGS] PACKAGE... -- SUITE...
//
//	often -list PACKAGE...
//
// Of the packages, those with goroutines or timers run RUNS times, with the race detector. Suites are packages
// whose tests use the kernel, and run less often. With -list, it prints those with goroutines or timers and runs
// nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
)

// options is what the command line says.
type options struct {
	runs, suiteRuns  int
	load             int // busy processes
	parallel         int // packages at a time
	race             bool
	list             bool   // only print which packages have goroutines or timers
	results, outputs string // file of results, directory for the output of failures
	only             *regexp.Regexp
	packages, suites []string
}

func main() {
	if os.Getenv(beBusy) != "" {
		spin()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	clean, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "often:", err)
	}
	if err != nil || !clean {
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("often", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 20, "of each package with goroutines or timers")
	flags.IntVar(&o.suiteRuns, "suite-runs", 3, "of each suite")
	flags.IntVar(&o.load, "load", 8, "busy processes beside the tests")
	flags.IntVar(&o.parallel, "parallel", 2, "packages at a time")
	flags.BoolVar(&o.race, "race", true, "run packages with the race detector")
	flags.BoolVar(&o.list, "list", false, "print the packages with goroutines or timers, and run none")
	flags.StringVar(&o.results, "results", "test/often.json", "`file` of results")
	flags.StringVar(&o.outputs, "outputs", "bin/often", "`directory` for the output of failures")
	only := flags.String("only", "", "`expression` for the packages to run")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return options{}, err
	}
	o.packages = flags.Args()
	if at := slices.Index(o.packages, "--"); at >= 0 {
		o.packages, o.suites = o.packages[:at], o.packages[at+1:]
	}
	if len(o.packages)+len(o.suites) == 0 || o.parallel < 1 {
		return options{}, errors.New("usage: often [FLAGS] PACKAGE [PACKAGE ...] -- [SUITE ...]")
	}
	return o, nil
}

// run makes the runs that are missing, and reports whether no test has failed, now or in an earlier run of the
// same sources.
func run(ctx context.Context, args []string, out io.Writer) (clean bool, err error) {
	o, err := parse(args)
	if err != nil {
		return false, err
	}
	if o.list {
		return true, printConcurrent(ctx, o.packages, out)
	}
	book, err := readBook(o.results)
	if err != nil {
		return false, err
	}
	all, err := o.findPackages(ctx)
	if err != nil {
		return false, err
	}
	book.update(all)
	if err := book.write(); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "nftproxy-often-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.MkdirAll(o.outputs, 0o755); err != nil {
		return false, err
	}
	if o.outputs, err = filepath.Abs(o.outputs); err != nil { // tests run in the directories of their packages
		return false, err
	}
	s := &session{options: o, book: book, out: out, dir: dir}
	if err := s.runAll(ctx, all); err != nil {
		return false, err
	}
	return book.summarize(out, all), nil
}
