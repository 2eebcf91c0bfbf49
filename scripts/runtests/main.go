// Command runtests runs the tests of Go packages in parts, all parts side by side, and prints all failures and
// skipped tests together at the end.
//
// A test that panics, exits or runs into the timeout ends the program of its package. The other
// tests of that package then run without it.
//
// Usage: runtests [FLAGS] [PART] [-- PART]...
//
// A part is packages or patterns, after "-race" for the race detector (which needs cgo), after "-program
// PACKAGE" to build a program once for all tests that start it, which find its path in NFTPROXY, and after
// "-split PACKAGE" for each of the packages whose tests take longest: its tests run in several programs, beside
// those of the other packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// config is how all parts run.
type config struct {
	shuffle  string        // seed, or "off"
	parallel int           // packages at a time
	timeout  time.Duration // of the program of a package
	noSkip   bool          // a skipped test is a failure
}

// part is packages whose tests are built in the same way.
type part struct {
	race     bool
	program  string   // package of the program that tests start, if it is built for all of them
	split    []string // packages whose tests run in several programs
	packages []string
}

// setOption sets an option that has a value, and reports whether a part has it.
func (p *part) setOption(name, value string) bool {
	switch name {
	case "-program":
		p.program = value
	case "-split":
		p.split = append(p.split, value)
	default:
		return false
	}
	return true
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
	}
	if err != nil || !passed {
		stop()
		os.Exit(1)
	}
}

// run runs the parts that the arguments name, and reports whether all tests have passed.
func run(ctx context.Context, args []string, out io.Writer) (passed bool, err error) {
	c, parts, err := parse(args)
	if err != nil {
		return false, err
	}
	log, err := os.CreateTemp("", "nftproxy-tests-*.log")
	if err != nil {
		return false, err
	}
	defer func() {
		err = errors.Join(err, log.Close())
		if passed {
			err = errors.Join(err, os.Remove(log.Name()))
		}
	}()
	fmt.Fprintln(out, "all output:", log.Name())
	begin := time.Now()
	r := newResults()
	if err := runParts(ctx, c, parts, r, newProgress(out, log, parts)); err != nil {
		return false, err
	}
	return r.summarize(out, c, log.Name(), time.Since(begin)), nil
}

// parse reads flags and parts. Without packages, the part is those of the current directory and below.
func parse(args []string) (c config, parts []part, err error) {
	flags := flag.NewFlagSet("runtests", flag.ContinueOnError)
	flags.StringVar(&c.shuffle, "shuffle", "", "`seed` of the order of tests, or off (default: the time)")
	flags.IntVar(&c.parallel, "parallel", 1, "packages at a time")
	flags.DurationVar(&c.timeout, "timeout", 40*time.Minute, "of one package")
	flags.BoolVar(&c.noSkip, "no-skip", false, "a skipped test is a failure")
	words := len(args)
	if at := slices.IndexFunc(args, func(arg string) bool { return arg == "--" || arg == "-race" || new(part).setOption(arg, "") }); at >= 0 {
		words = at // flags of the first part begin
	}
	if err := flags.Parse(args[:words]); err != nil {
		return config{}, nil, err
	}
	if c.shuffle == "" {
		c.shuffle = strconv.FormatInt(time.Now().Unix(), 10)
	}
	parts, err = parseParts(slices.Concat(flags.Args(), args[words:], []string{"--"}))
	return c, parts, err
}

// parseParts reads parts, each of which ends with "--".
func parseParts(args []string) (parts []part, err error) {
	var p part
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-race" && len(p.packages) == 0:
			p.race = true
		case len(p.packages) == 0 && i+1 < len(args) && p.setOption(arg, args[i+1]):
			i++
		case arg != "--":
			p.packages = append(p.packages, arg)
		case len(p.packages) > 0 || len(parts) == 0 && i == len(args)-1:
			parts, p = append(parts, p), part{}
		default:
			return nil, fmt.Errorf("part %d has no packages", len(parts)+1)
		}
	}
	if len(parts[0].packages) == 0 {
		parts[0].packages = []string{"./..."}
	}
	return parts, nil
}

// arguments returns what go test is called with.
func (c config) arguments(j job) []string {
	args := []string{"test", "-json", "-vet=off", "-count=1", "-p", strconv.Itoa(c.parallel),
		"-timeout", c.timeout.String(), "-shuffle", c.shuffle}
	if j.part.race {
		args = append(args, "-race")
	}
	if len(j.only) > 0 {
		args = append(args, "-run", exactly(j.only))
	}
	if len(j.skip) > 0 {
		args = append(args, "-skip", exactly(j.skip))
	}
	return slices.Concat(args, j.packages)
}
