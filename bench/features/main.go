package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/bench/guest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/test/debian"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measure := func(args []string) error { return measureCommand(ctx, args) }
	inside, err := guest.Main(os.Args[1:], measure)
	if !inside {
		err = measure(os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "features:", err)
		os.Exit(1)
	}
}

func measureCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("features", flag.ContinueOnError)
	p := plan{}
	only := flags.String("only", "", "rows to measure, separated by commas (default: all)")
	family := flags.String("family", model.IPv4.String(), "family of the connections")
	flags.IntVar(&p.services, "services", 1000, "number of Services")
	flags.IntVar(&p.runs, "runs", 3, "number of runs, with new laboratories")
	flags.IntVar(&p.rounds, "rounds", 10, "number of rounds in each run")
	flags.IntVar(&p.connections, "connections", 2000, "connections of each row in a round")
	flags.StringVar(&p.place, "place", "", "name of the machine in the results, if it is not a real one")
	flags.StringVar(&p.nftproxy, "nftproxy", "bin/nftproxy", "program nftproxy")
	machine := flags.Bool("machine", false, "count instructions in a virtual machine")
	out := flags.String("o", "", "write the results to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *machine {
		return guest.Measure(ctx, packages, p.nftproxy, p.guestArguments(*only, *family), *out)
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
	return p.write(*out, p.version(), all)
}

// packages are the programs in the virtual machine, which needs no other for this.
var packages = debian.Set{Name: "-features", Packages: []string{"nftables"}}

// guestArguments returns the arguments of this program in the virtual machine. Few
// rounds suffice there.
func (p *plan) guestArguments(only, family string) []string {
	return []string{"-only", only, "-family", family, "-runs", "1", "-rounds", "2", "-connections", "300", "-services", fmt.Sprint(p.services)}
}

// version returns what the program that is measured calls itself.
func (p *plan) version() string {
	out, _ := exec.Command(p.nftproxy, "--version").Output()
	words := strings.Fields(string(out))
	if len(words) < 2 {
		return "unknown"
	}
	return words[1]
}
