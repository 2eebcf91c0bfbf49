// Command size measures the program itself, and what its start costs:
//
//	size [-version V] [-runs 20] [-o FILE.json]
//
// It builds nftproxy with and without symbols, adds up the code and the data of the packages
// in it, and runs "nftproxy version", which does nothing beyond what every start does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nftproxy/nftproxy/bench/command"
	"github.com/nftproxy/nftproxy/bench/results"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("size", flag.ContinueOnError)
	version := flags.String("version", "unknown", "`version` of the source")
	runs := flags.Int("runs", 20, "`times` that the program is started")
	out := flags.String("o", "", "write the results to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nftproxy-size-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	full, stripped := filepath.Join(dir, "full"), filepath.Join(dir, "stripped")
	for path, ldflags := range map[string]string{full: "", stripped: "-s -w"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", ldflags+" -X main.version="+*version, "-o", path, "./cmd/nftproxy")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build nftproxy: %w\n%s", err, text)
		}
	}
	records, err := measure(full, stripped, *runs)
	if err != nil {
		return err
	}
	return command.Write(*out, stripped, records)
}

// measure returns what is known of a program, in builds with symbols and without.
func measure(full, stripped string, runs int) ([]results.Record, error) {
	parts, err := partsOf(full)
	if err != nil {
		return nil, err
	}
	var out []results.Record
	for _, f := range []struct{ name, path string }{{results.StrippedProgram, stripped}, {results.WholeProgram, full}} {
		size, err := os.Stat(f.path)
		if err != nil {
			return nil, err
		}
		out = append(out, record(results.ProgramSize, f.name, &results.Part{File: size.Size()}))
	}
	for _, p := range parts {
		fmt.Printf("%9d code %9d data  %s\n", p.Code, p.Data, p.name)
		out = append(out, record(results.ProgramSize, p.name, &results.Part{Code: p.Code, Data: p.Data}))
	}
	start, err := startOf(stripped, runs)
	if err != nil {
		return nil, err
	}
	fmt.Printf("start: %.1f ms, %.1f ms of processor time\n", start.Seconds.P50*1e3, start.Cost.P50*1e3)
	inits, err := initsOf(stripped, runs)
	return append(append(out, start), inits...), err
}

func record(op results.Operation, name string, p *results.Part) results.Record {
	return results.Record{Program: results.Nftproxy, Operation: op, Scenario: name, Part: p}
}
