// Command checks measures what health checks cost the daemon, on the real kernel and with a
// real server:
//
//	checks [-nftproxy bin/nftproxy] [-endpoints 1000,10000] [-intervals 5s,2s] [-rounds 6] [-runs 3] [-o FILE.json]
//
// A node runs nftproxy for Balances of four endpoints, all of which are addresses of another
// network namespace with one listener. The daemon runs once without checks, and once with
// TCP checks at each interval, until each endpoint was checked as often as there are rounds.
// It needs root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/command"
)

func main() { command.Main("checks", measureCommand) }

func measureCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("checks", flag.ContinueOnError)
	p := plan{}
	sizes := flags.String("endpoints", "1000,10000", "`numbers` of endpoints, separated by commas")
	intervals := flags.String("intervals", "5s,2s", "`times` between two checks of an endpoint, separated by commas")
	flags.IntVar(&p.rounds, "rounds", 6, "`times` that each endpoint is checked")
	flags.IntVar(&p.runs, "runs", 3, "`times` that everything is measured")
	flags.StringVar(&p.nftproxy, "nftproxy", "bin/nftproxy", "`program` nftproxy")
	out := flags.String("o", "", "write the results to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := p.parse(*sizes, *intervals); err != nil {
		return err
	}
	var err error
	if p.dir, err = os.MkdirTemp("", "nftproxy-checks-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	records, err := p.measure(ctx)
	if err != nil {
		return err
	}
	return command.Write(*out, p.nftproxy, records)
}

// parse reads lists of sizes and intervals.
func (p *plan) parse(sizes, intervals string) error {
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < perService || n > mostEndpoints || n%perService != 0 {
			return fmt.Errorf("%q endpoints: use multiples of %d up to %d", text, perService, mostEndpoints)
		}
		p.sizes = append(p.sizes, n)
	}
	for text := range strings.SplitSeq(intervals, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("interval: %w", err)
		}
		p.intervals = append(p.intervals, d)
	}
	return nil
}
