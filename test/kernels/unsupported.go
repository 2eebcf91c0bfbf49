package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// unsupported is a feature that a kernel lacks, and the tests that are skipped
// there for that reason. Any other skipped test is a failure, and so is one of
// these that is not skipped.
type unsupported struct {
	kernel, reason string
	tests          map[string][]string // by package
}

var lacking = []unsupported{{
	"6.1", "tables that outlive their owner came with kernel 6.9", map[string][]string{
		"internal/apply": {"TestOwnedTableStays", "TestOwnedByAnother", "TestTableBecomesOwned", "TestUnownedTable", "TestBusyNeighbour/owner"},
		"test":           {"TestSecondDaemon", "TestBesideRunningOwner", "TestForeignWritesAreRejected"},
	},
}}

func (u unsupported) concerns(r *result) bool { return strings.HasPrefix(r.Kernel, u.kernel+".") }

// skips returns the tests that are skipped and should not be, and those that
// should be skipped and are not.
func (r *result) skips() (wrongly, missing []string) {
	var expected []string
	for _, u := range lacking {
		if u.concerns(r) {
			expected = append(expected, u.tests[r.Package]...)
		}
	}
	return without(r.Skipped, expected), without(expected, r.Skipped)
}

func without(list, taken []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(taken, s) })
}

// printLacking prints the features that these kernels lack.
func printLacking(out io.Writer, results []result) {
	for _, u := range lacking {
		if !slices.ContainsFunc(results, func(r result) bool { return u.concerns(&r) }) {
			continue
		}
		fmt.Fprintf(out, "not tested on kernel %s, since %s:\n", u.kernel, u.reason)
		for _, pkg := range slices.Sorted(maps.Keys(u.tests)) {
			fmt.Fprintf(out, "  %s: %s\n", pkg, strings.Join(u.tests[pkg], ", "))
		}
	}
}
