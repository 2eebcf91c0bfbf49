package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/nftproxy/nftproxy/bench/command"
	"github.com/nftproxy/nftproxy/bench/guest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/test/debian"
)

func main() {
	command.Main("features", func(ctx context.Context, args []string) error {
		run := func(args []string) error { return measureCommand(ctx, args) }
		if done, err := guest.Serve(args, run); done {
			return err
		}
		return run(args)
	})
}

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
	machine := flags.String("machine", "", "measure in a virtual machine that counts instructions, on the `kernel` of a Debian release: 6.1 or 6.12")
	out := flags.String("o", "", "write the results to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *machine != "" {
		return measureInMachine(ctx, *machine, p.nftproxy, guest.Arguments(flags, "machine", "o", "nftproxy"), *out)
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
	return command.Write(*out, p.nftproxy, p.records(all))
}

const guestProgram = "/nftproxy"

// measureInMachine runs this program with arguments in a virtual machine, and writes the results to
// a file.
func measureInMachine(ctx context.Context, kernel, nftproxy string, args []string, out string) error {
	release, err := debian.ReleaseOf(kernel, runtime.GOARCH)
	if err != nil {
		return err
	}
	m := guest.Machine{Release: release, Packages: debian.Userland, Programs: map[string]string{guestProgram: nftproxy}}
	found, err := m.Measure(ctx, append(args, "-nftproxy", guestProgram))
	if err != nil || out == "" {
		return err
	}
	return os.WriteFile(out, found, 0o644)
}
