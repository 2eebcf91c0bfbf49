package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/layout"
	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/bench/tree"
)

// plotCommand draws plots of results into a directory. What nothing was
// measured of is left as it is.
func plotCommand(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: bench plot DIRECTORY FILE.json [FILE.json ...]")
	}
	files, err := results.Read(args[1:]...)
	if err != nil {
		return err
	}
	for _, f := range report.Figures(files) {
		if len(f.Plot.Lines) == 0 {
			continue
		}
		svg, err := f.Plot.SVG()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[0], f.Name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tableCommand prints tables of results as Markdown, or writes them into pages.
func tableCommand(args []string) error {
	flags := flag.NewFlagSet("bench table", flag.ContinueOnError)
	var pages []string
	flags.Func("w", "write the tables into a `page` where it has marks for them", func(path string) error {
		pages = append(pages, path)
		return nil
	})
	accept := flags.String("accept", "", "tables, separated by commas, that may be of earlier rules or of an earlier Kubernetes")
	why := flags.String("why", "", "why these are not measured again, for the list on the page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || (*accept == "") != (*why == "") {
		return errors.New("usage: bench table [-w PAGE.md ...] [-accept TABLE,TABLE -why REASON] FILE.json [FILE.json ...]")
	}
	files, err := results.Read(flags.Args()...)
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		printTables(report.Tables(files))
		return nil
	}
	current, err := tree.Of()
	if err != nil {
		return err
	}
	p := &report.Pages{Files: files, Tree: current,
		Accept: report.Acceptance{Tables: strings.Split(*accept, ","), Date: time.Now().UTC().Format(time.DateOnly), Why: *why}}
	return writePages(p, pages)
}

func printTables(tables map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if tables[name] != "" {
			fmt.Printf("%s:\n\n%s\n", name, tables[name])
		}
	}
}

// writePages rewrites pages. Earlier figures that a page does not list are an error, as
// they are for the tests.
func writePages(p *report.Pages, paths []string) error {
	var all []error
	for _, path := range paths {
		earlier, err := p.RewriteFile(path)
		if err != nil {
			return err
		}
		for _, e := range earlier {
			all = append(all, fmt.Errorf("%s: %s; this source has rules %s and Kubernetes %s", path, e, p.Tree.Layout, p.Tree.Kubernetes))
		}
	}
	if len(all) > 0 {
		all = append(all, errors.New("measure them with make bench-tables, or accept them with make bench-report ACCEPT=TABLE,TABLE WHY='REASON'"))
	}
	return errors.Join(all...)
}

// stampCommand writes the layout of a program into files without one, and its version if
// the file has none.
func stampCommand(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: bench stamp NFTPROXY FILE.json [FILE.json ...]")
	}
	rules, err := layout.Of(args[0])
	if err != nil {
		return err
	}
	out, err := exec.Command(args[0], "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 2 {
		return fmt.Errorf("ask %s for its version: got %q, %w", args[0], out, err)
	}
	for _, path := range args[1:] {
		files, err := results.Read(path)
		if err != nil {
			return err
		}
		f, program := files[0], string(results.Nftproxy)
		if v := f.Versions[program]; v == "" || v == "(devel)" {
			f.Versions[program] = words[1]
		}
		if f.Versions[program] != words[1] || f.Layout != "" {
			return fmt.Errorf("%s is of nftproxy %s, rules %q; %s is nftproxy %s", path, f.Versions[program], f.Layout, args[0], words[1])
		}
		f.Layout = rules
		if err := f.Write(path); err != nil {
			return err
		}
	}
	return nil
}
