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
