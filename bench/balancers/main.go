package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/bench/guest"
)

// children are the commands of the processes that the program starts.
var children = map[string]func([]string) error{
	"serve": serveCommand, "load": loadCommand, "pace": paceCommand, "watch": watchCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	run := func(args []string) error { return measureCommand(ctx, args) }
	done, err := guest.Serve(args, run)
	if len(args) > 0 && children[args[0]] != nil {
		run, args = children[args[0]], args[1:]
	}
	if !done {
		err = run(args)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "balancers:", err)
		os.Exit(1)
	}
}

// plan is what a run of the program measures.
type plan struct {
	balancers []balancer
	measures  []string
	runs      int
	services  int
	pace      int // requests a second during a failover
	span      time.Duration
	place     string // of the results, if it is no real machine
}

// measures are in the order in which they run.
var measures = []string{"traffic", "services", "failover"}

func measureCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("balancers", flag.ContinueOnError)
	only := flags.String("only", "", "balancers to measure, separated by commas (default: all that this kernel supports)")
	what := flags.String("measure", strings.Join(measures, ","), "what to measure, separated by commas")
	p := plan{}
	flags.IntVar(&p.runs, "runs", 5, "number of runs")
	flags.IntVar(&p.services, "services", 1000, "number of services among which one is changed")
	flags.IntVar(&p.pace, "pace", 300, "requests a second while a server fails")
	flags.DurationVar(&p.span, "span", 2*time.Second, "how long traffic is measured")
	flags.StringVar(&p.place, "place", "", "name of the machine in the results, if it is not a real one")
	machine := flags.Bool("machine", false, "measure in a virtual machine, whose kernel has IPVS")
	out := flags.String("o", "", "write the results to this `file`")
	flags.StringVar(&nftproxyPath, "nftproxy", nftproxyPath, "program nftproxy")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *machine {
		return measureInMachine(ctx, guest.Arguments(flags, "machine", "o", "nftproxy"), *out)
	}
	var err error
	if p.balancers, err = selectBalancers(*only); err != nil {
		return err
	}
	p.measures = strings.Split(*what, ",")
	for _, m := range p.measures {
		if !slices.Contains(measures, m) {
			return fmt.Errorf("no measurement %q: use %s", m, strings.Join(measures, ", "))
		}
	}
	book, err := p.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Println(book.table())
	if *out == "" {
		return nil
	}
	return book.write(*out)
}

// measure runs everything. What is measured takes turns in each run.
func (p *plan) measure(ctx context.Context) (*book, error) {
	dir, err := os.MkdirTemp("", "nftproxy-balancers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	k := newBook(p)
	if slices.Contains(p.measures, "traffic") {
		// The first connections of a machine take longer.
		if err := p.traffic(newBook(p), direct{}, dir); err != nil {
			return nil, err
		}
	}
	for run := range p.runs {
		for _, m := range p.measures {
			for _, b := range p.balancers {
				if !p.has(b, m) {
					continue
				}
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				began := time.Now()
				if err := p.turn(k, m, b, dir); err != nil {
					return nil, fmt.Errorf("%s, %s: %w", b.name(), m, err)
				}
				fmt.Fprintf(os.Stderr, "run %d of %d: %s, %s: %.1f s\n", run+1, p.runs, b.name(), m, time.Since(began).Seconds())
			}
		}
	}
	return k, nil
}

// has reports whether something is measured of a balancer. nftlb takes 37 s to start with
// 1,000 services on a real machine, so it does not in an emulated one.
func (p *plan) has(b balancer, measure string) bool {
	return slices.Contains(b.measures(), measure) && (p.place == "" || measure != "services" || b != balancer(nftlb{}))
}

func (p *plan) turn(k *book, measure string, b balancer, dir string) error {
	switch measure {
	case "traffic":
		return p.traffic(k, b, dir)
	case "services":
		return p.manyServices(k, b, dir)
	}
	return p.failover(k, b, dir)
}

// version returns a word of what a program prints.
func version(word int, name string, args ...string) string {
	out, _ := exec.Command(name, args...).CombinedOutput()
	words := strings.Fields(string(out))
	if len(words) <= word {
		return "unknown"
	}
	return strings.Trim(words[word], "v,")
}
