package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
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
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("usage: bench table [-w PAGE.md ...] FILE.json [FILE.json ...]")
	}
	files, err := results.Read(flags.Args()...)
	if err != nil {
		return err
	}
	tables := report.Tables(files)
	if len(pages) == 0 {
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			if tables[name] != "" {
				fmt.Printf("%s:\n\n%s\n", name, tables[name])
			}
		}
	}
	for _, path := range pages {
		if err := report.RewriteFile(path, tables); err != nil {
			return err
		}
	}
	return nil
}
