// Command files measures the memory that nftproxy has with the objects of a file, and what an edit of
// the file costs:
//
//	files [-nftproxy bin/nftproxy] [-services 10000] [-rest 35s] [-runs 3] [-o FILE.json]
//
// A node runs nftproxy with one file of Services of four endpoints, as kubectl prints them: without and
// with --isolate-files. Memory is read after each step, and again after a rest, in which nftproxy
// returns what the step has needed. It needs root.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/bench/command"
)

func main() { command.Main("files", measureCommand) }

// mostServices is how many have addresses of their own in [sourcetest.ManyTexts].
const mostServices = 1 << 16

func measureCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("files", flag.ContinueOnError)
	p := plan{}
	flags.IntVar(&p.services, "services", 10_000, "`number` of Services of four endpoints")
	flags.DurationVar(&p.rest, "rest", 35*time.Second, "`time` between a step and the second look at the memory")
	flags.IntVar(&p.runs, "runs", 3, "`times` that everything is measured")
	flags.StringVar(&p.nftproxy, "nftproxy", "bin/nftproxy", "`program` nftproxy")
	out := flags.String("o", "", "write the results to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.services < 1 || p.services > mostServices {
		return fmt.Errorf("%d Services: use 1 to %d", p.services, mostServices)
	}
	records, err := p.measure(ctx)
	if err != nil {
		return err
	}
	return command.Write(*out, p.nftproxy, records)
}
