package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/nftproxy/nftproxy/bench/command"
	"github.com/nftproxy/nftproxy/internal/model"
)

func main() { command.Main("features", measureCommand) }

func measureCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("features", flag.ContinueOnError)
	p := plan{}
	only := flags.String("only", "", "rows to measure, separated by commas (default: all)")
	family := flags.String("family", model.IPv4.String(), "family of the connections")
	flags.IntVar(&p.services, "services", 1000, "number of Services")
	flags.IntVar(&p.runs, "runs", 5, "number of runs, with new laboratories")
	flags.IntVar(&p.rounds, "rounds", 15, "number of rounds in each run")
	flags.IntVar(&p.connections, "connections", 2000, "connections of each row in a round")
	flags.StringVar(&p.nftproxy, "nftproxy", "bin/nftproxy", "program nftproxy")
	out := flags.String("o", "", "write the results to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if p.family, err = parseFamily(*family); err != nil {
		return err
	}
	if p.features, err = selectFeatures(*only); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "nftproxy-features-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	all, err := p.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Println(p.table(all))
	if *out == "" {
		return nil
	}
	version, err := command.Version(p.nftproxy)
	if err != nil {
		return err
	}
	return p.write(*out, version, all)
}
