// Package command holds what the programs of the measurements share.
package command

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
	"time"

	"github.com/nftproxy/nftproxy/bench/layout"
	"github.com/nftproxy/nftproxy/bench/results"
)

// Main runs a program with its arguments until it ends or is interrupted, and ends the process.
// An error is printed after the program's name; it was already printed if it is [flag.ErrHelp].
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Version returns what the program that is measured calls itself.
func Version(program string) (string, error) {
	out, err := exec.Command(program, "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 2 {
		return "", fmt.Errorf("ask %s for its version: got %q, %w", program, out, err)
	}
	return words[1], nil
}

// Results returns what a file of results says besides its records: this machine, its load and
// the time now, and the program that is measured with its rules.
func Results(program string, records []results.Record) (*results.File, error) {
	machine, err := results.ThisMachine()
	if err != nil {
		return nil, err
	}
	rules, err := layout.Of(program)
	if err != nil {
		return nil, err
	}
	version, err := Version(program)
	if err != nil {
		return nil, err
	}
	return &results.File{Machine: machine, Date: time.Now().UTC().Truncate(time.Second), Layout: rules, Load: results.Load(),
		Versions: map[string]string{string(results.Nftproxy): version}, Records: records}, nil
}

// Write writes a file of [Results], unless its path is empty.
func Write(path, program string, records []results.Record) error {
	if path == "" {
		return nil
	}
	file, err := Results(program, records)
	if err != nil {
		return err
	}
	return file.Write(path)
}
