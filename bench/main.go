// Command bench measures what nftproxy costs, on the real kernel, and makes
// tables and plots of what was found.
//
//	bench [-scenario base,A,...] [-sweep N] [-runs N] [-starts] [-kernels 6.1,6.12] [-o FILE.json]
//	bench plot DIRECTORY FILE.json [FILE.json ...]
//	bench table [-w PAGE.md ...] [-accept TABLE,TABLE -why REASON] FILE.json [FILE.json ...]
//	bench stamp NFTPROXY FILE.json [FILE.json ...]
//
// To measure needs root: it makes network namespaces. With -kernels it measures in virtual
// machines: see the package guest.
package main

import (
	"context"
	"os"

	"github.com/nftproxy/nftproxy/bench/command"
	"github.com/nftproxy/nftproxy/bench/guest"
)

// jobCommand makes the program do one job; see [runJob].
const jobCommand = "measure"

func main() { command.Main("bench", run) }

func run(ctx context.Context, args []string) error {
	if done, err := guest.Serve(args, func(args []string) error { return benchCommand(ctx, args) }); done {
		return err
	}
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case jobCommand:
		return runJob(os.Stdin, os.Stdout)
	case "plot":
		return plotCommand(args[1:])
	case "table":
		return tableCommand(args[1:])
	case "stamp":
		return stampCommand(args[1:])
	}
	return benchCommand(ctx, args)
}
