package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/bench/tree"
)

// benchConfig selects the scenarios to measure.
type benchConfig struct {
	scenarios []scenario
	runs      int
	repeats   repeats
	versions  map[string]string
	place     string // of the results, if it is no real machine
}

// benchCommand measures, prints tables, and writes a file if one is asked for.
func benchCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	names := flags.String("scenario", "base,A,AM,B,C,D", "`names`, separated by commas; also sizes such as 300x4")
	limit := flags.Int("sweep", 0, "measure growing numbers of services of 4 endpoints up to `N`, instead of scenarios")
	runs := flags.Int("runs", 1, "`times` that everything is measured")
	starts := flags.Bool("starts", false, "measure starts only")
	kernels := flags.String("kernels", "", "measure on these `kernels` of Debian, separated by commas, in virtual machines that count instructions")
	place := flags.String("place", "", "name of the machine in the results, if it is not a real one")
	version := flags.String("version", "unknown", "`version` of the code that is measured")
	output := flags.String("o", "", "also write the results to a `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *runs < 1 {
		return fmt.Errorf("usage: bench [flags], with -runs of at least 1; or bench plot, bench table")
	}
	if *kernels != "" {
		return measureOn(ctx, strings.Split(*kernels, ","), guestArguments(flags), *output)
	}
	c := benchConfig{
		scenarios: sweepScenarios(*limit), runs: *runs, repeats: usualRepeats, place: *place,
		versions: map[string]string{string(results.Nftproxy): *version},
	}
	if *starts {
		c.repeats = repeats{}
	}
	if *limit == 0 {
		var err error
		if c.scenarios, err = selectScenarios(*names); err != nil {
			return err
		}
	}
	file, err := c.bench(ctx, os.Stdout)
	if err != nil || *output == "" {
		return err
	}
	return file.Write(*output)
}

// bench measures the scenarios, and prints each as soon as it is done.
func (c benchConfig) bench(ctx context.Context, out io.Writer) (*results.File, error) {
	machine, err := results.ThisMachine()
	if err != nil {
		return nil, err
	}
	rules, err := tree.Layout()
	if err != nil {
		return nil, err
	}
	file := &results.File{Machine: machine, Versions: c.versions, Layout: rules}
	fmt.Fprintf(out, "%s, %d cores, kernel %s\n", machine.CPU, machine.Cores, machine.Kernel)
	for _, s := range c.scenarios {
		var all [][]series
		for range c.runs {
			found, err := delegate(ctx, job{s, c.repeats})
			if err != nil {
				return nil, err
			}
			all = append(all, found)
		}
		found := records(s, all)
		for i := range found {
			found[i].Place = c.place
		}
		fmt.Fprintf(out, "\n%s\n", s)
		if err := printRecords(out, found); err != nil {
			return nil, err
		}
		file.Records = append(file.Records, found...)
	}
	file.Date, file.Load = time.Now().UTC().Truncate(time.Second), results.Load()
	return file, nil
}
