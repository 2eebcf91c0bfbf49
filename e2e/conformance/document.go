package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// save puts the run in the place of an earlier one with the same proxy and
// families, and rewrites the tables of the document.
func (r *result) save(document string) error {
	file := filepath.Join(strings.TrimSuffix(document, ".md"), "results.json")
	all, err := report.Merge(file, map[string]*result{fmt.Sprintf("%s, %s", r.Proxy, r.Families): r})
	if err != nil {
		return err
	}
	return rewrite(document, slices.Collect(maps.Values(all)))
}

// rewrite puts the tables of runs into the document.
func rewrite(document string, runs []*result) error {
	order := []kubelets.Families{kubelets.IPv4, kubelets.IPv6, kubelets.DualStack, kubelets.DualStackIPv6}
	slices.SortFunc(runs, func(a, b *result) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Families), slices.Index(order, b.Families)), -cmp.Compare(a.Proxy, b.Proxy))
	})
	return report.RewriteFile(document, map[string]string{
		"runs": runsTable(runs), "tests": testsTable(runs), "omitted": omittedTable(runs)})
}

// runsTable has a line for each run.
func runsTable(runs []*result) string {
	var text strings.Builder
	text.WriteString("| proxy | tests of | cluster | date | kernel, cores | passed | of these when repeated | failed | skipped | minutes |\n" +
		"|---|---|---|---|---|--:|--:|--:|--:|--:|\n")
	for _, r := range runs {
		ran, failures := 0, r.count(failed)
		for _, o := range r.Tests {
			if o.State == skipped && !r.omitted(o) {
				ran++ // begun, and skipped by the test itself
			}
		}
		fmt.Fprintf(&text, "| %s %s | Kubernetes %s | %d nodes, %s | %s | Linux %s, %d | %d | %d | %d | %d | %.0f |\n", r.Proxy, r.Version, r.Kubernetes,
			r.Nodes, r.Families, r.Date, r.Kernel, r.Cores, r.count(passed), r.repeated(), failures, ran, r.Minutes)
	}
	return text.String()
}

// omitted reports whether a test was left out by this program.
func (r *result) omitted(o outcome) bool {
	return o.State == skipped && slices.ContainsFunc(leftOut, func(x omission) bool { return x.reason == o.Reason })
}

// testsTable has a line for each test that was begun, and a column for each run.
func testsTable(runs []*result) string {
	var text strings.Builder
	text.WriteString("| test |")
	for _, r := range runs {
		fmt.Fprintf(&text, " %s, %s, %s |", r.Proxy, r.Families, r.Kubernetes)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(runs)) + "\n")
	for _, name := range names(runs, func(r *result, o outcome) bool { return !r.omitted(o) }) {
		fmt.Fprintf(&text, "| %s |", short(name))
		for _, r := range runs {
			text.WriteString(" " + r.cell(name) + " |")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// cell is the outcome of a test.
func (r *result) cell(name string) string {
	o, ok := r.Tests[name]
	switch {
	case !ok:
		return "-"
	case o.State == passed && o.Again:
		return fmt.Sprintf("passed when repeated, %.0f s", o.Seconds)
	case o.State == passed:
		return fmt.Sprintf("passed, %.0f s", o.Seconds)
	case o.State == failed:
		return "**failed**: " + inTable(o.Reason)
	default:
		return "skipped: " + inTable(o.Reason)
	}
}

// omittedTable has the tests that no run began, by reason.
func omittedTable(runs []*result) string {
	var text strings.Builder
	for _, x := range leftOut {
		tests := names(runs, func(r *result, o outcome) bool { return r.omitted(o) && o.Reason == x.reason })
		if len(tests) == 0 {
			continue
		}
		fmt.Fprintf(&text, "%d tests: %s.\n\n", len(tests), x.reason)
		for _, name := range tests {
			fmt.Fprintf(&text, "- %s\n", short(name))
		}
		text.WriteString("\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

// names returns the tests of all runs whose outcome in one of them is wanted, in
// order.
func names(runs []*result, wanted func(*result, outcome) bool) []string {
	all := map[string]bool{}
	for _, r := range runs {
		for name, o := range r.Tests {
			if wanted(r, o) {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// short leaves out what all names have.
func short(name string) string {
	return inTable(strings.TrimSpace(strings.ReplaceAll(name, "[sig-network] ", "")))
}

var spaces = regexp.MustCompile(`\s+`)

// inTable makes a text fit for a cell.
func inTable(text string) string {
	const most = 200
	text = spaces.ReplaceAllString(text, " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "..."
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
