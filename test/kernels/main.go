package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/debian"
)

func main() {
	args := os.Args[1:]
	switch {
	case slices.Equal(args, []string{guestCommand}):
		debian.Init(jobsCommand)
		return
	case slices.Equal(args, []string{jobsCommand}):
		exit(runJobs())
	}
	exit(run(args))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options are what the command line selects.
type options struct {
	packages *regexp.Regexp
	tests    string
	arch     string
	golden   bool // run the golden tests on this machine, too
	counting bool // time is counted in instructions in virtual machines
	releases []debian.Release
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("kernels", flag.ContinueOnError)
	packages := flags.String("packages", "", "in virtual machines, test only packages that match a `regexp`")
	flags.StringVar(&o.tests, "tests", "", "in virtual machines, run only tests that match a `regexp`")
	flags.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture of the virtual machines: amd64 or arm64")
	flags.BoolVar(&o.golden, "golden", true, "run the golden tests on this machine, with the nft of each release, if it has that architecture")
	flags.BoolVar(&o.counting, "counting", false, "count time in instructions in virtual machines, and build tests that measure it: waiting takes no time")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.arch != "amd64" && o.arch != "arm64" {
		return o, fmt.Errorf("no architecture %q; there are amd64 and arm64", o.arch)
	}
	if o.packages, err = regexp.Compile(*packages); err != nil {
		return o, err
	}
	o.golden = o.golden && o.arch == runtime.GOARCH
	o.releases, err = selectReleases(o.arch, flags.Args())
	return o, err
}

// run runs everything for the kernels that are named, or for all.
func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work, err := os.MkdirTemp("", "nftproxy-kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	began := time.Now()
	s, err := buildSuite(ctx, work, o)
	if err != nil {
		return err
	}
	fmt.Printf("%.1f s to build the tests\n", time.Since(began).Seconds())

	// In parallel: an emulated machine keeps no more than one processor busy.
	results, errs := make([][]result, len(o.releases)), make([]error, len(o.releases))
	var shared sync.Mutex
	var releases sync.WaitGroup
	for i, r := range o.releases {
		out := &lines{prefix: r.Kernel + ": ", out: os.Stdout, shared: &shared}
		releases.Go(func() {
			results[i], errs[i] = s.runOn(ctx, r, out)
		})
	}
	releases.Wait()
	all := slices.Concat(results...)
	printResults(os.Stdout, all)
	fmt.Printf("%.1f s altogether\n", time.Since(began).Seconds())
	return errors.Join(append(errs, judge(all))...)
}

// runOn runs everything for one release. It returns what ran, also if not all
// did.
func (s *suite) runOn(ctx context.Context, r debian.Release, out io.Writer) ([]result, error) {
	steps := stopwatch{time.Now(), out}
	system, err := debian.Unpack(ctx, r, debian.Userland)
	if err != nil {
		return nil, fmt.Errorf("unpack Debian %s: %w", r.Codename, err)
	}
	steps.lap("unpack Debian " + r.Codename)
	var results []result
	if s.golden {
		listed, err := s.runHere(ctx, system, out)
		if err != nil {
			return nil, fmt.Errorf("run the nft of Debian %s: %w", r.Codename, err)
		}
		results = append(results, listed)
		steps.lap("run the golden tests here with its nft")
	}
	booted, err := s.boot(ctx, system, out)
	if err != nil {
		err = fmt.Errorf("kernel %s: %w", r.Kernel, err)
	}
	steps.lap("run the virtual machine")
	return append(results, booted...), err
}

func selectReleases(arch string, kernels []string) ([]debian.Release, error) {
	if len(kernels) == 0 {
		return debian.Releases(arch), nil
	}
	var selected []debian.Release
	for _, k := range kernels {
		r, err := debian.ReleaseOf(k, arch)
		if err != nil {
			return nil, err
		}
		selected = append(selected, r)
	}
	return selected, nil
}

// judge returns an error if something failed or was skipped, or nothing ran.
func judge(results []result) error {
	if len(results) == 0 {
		return errors.New("no tests were run")
	}
	var errs []error
	for _, r := range results {
		if problem := r.problem(); problem != "" {
			errs = append(errs, fmt.Errorf("%s on %s with %s: %s", r.Package, r.Kernel, r.Nft, problem))
		}
	}
	return errors.Join(errs...)
}

// stopwatch prints how long steps take.
type stopwatch struct {
	last time.Time
	out  io.Writer
}

func (w *stopwatch) lap(step string) {
	now := time.Now()
	fmt.Fprintf(w.out, "%.1f s to %s\n", now.Sub(w.last).Seconds(), step)
	w.last = now
}
