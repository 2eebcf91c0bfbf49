// Command figures keeps the size of the code from growing unnoticed:
//
//	figures [-update [-why REASON]]
//
// It compares the code with scripts/figures/limits.txt, and fails where a figure is above its limit.
// With -update it writes the figures of today as limits; one that rises needs a reason, which
// stays beside it until the figure falls.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

const file = "scripts/figures/limits.txt"

const header = `# What the product may measure at most: cmd and internal, without tests and testkit. "make lint" fails where
# a figure is above its limit. "go run ./scripts/figures -update" lowers the limits to the figures of today,
# and with -why "REASON" raises them; the reason stands behind the limit.
`

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	update := flags.Bool("update", false, "write the figures as limits")
	why := flags.String("why", "", "`reason` why figures rise, for -update")
	if err := flags.Parse(args); err != nil {
		return err
	}
	code, err := readCode("cmd", "internal")
	if err != nil {
		return err
	}
	figures := code.figures()
	if err := errors.Join(addProgram(figures, code), addDocumentation(figures)); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	limits, err := parseLimits(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if *update {
		return writeLimits(figures, limits, *why)
	}
	fmt.Printf("%d lines; %d of %d functions have a name of one word (%d %%)\n", figures[allLines], figures[oneWord], code.functions,
		figures[oneWord]*100/max(code.functions, 1))
	if above := exceeded(figures, limits); len(above) > 0 {
		return fmt.Errorf("figures rose above %s:\n  %s\nMake them smaller, or run: go run ./scripts/figures -update -why \"REASON\"", file, strings.Join(above, "\n  "))
	}
	return nil
}

// A limit is the highest value that a figure may have, and why it last rose.
type limit struct {
	value int
	why   string
}

func parseLimits(text string) (map[string]limit, error) {
	limits := map[string]limit{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		entry, why, _ := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		value, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil || len(fields) < 2 {
			return nil, fmt.Errorf("line %q: want NAME NUMBER # REASON", line)
		}
		limits[strings.Join(fields[:len(fields)-1], " ")] = limit{value, strings.TrimSpace(why)}
	}
	return limits, nil
}

// exceeded returns a line for each figure above its limit. A figure without a limit is above it.
func exceeded(figures map[string]int, limits map[string]limit) []string {
	var above []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		if value, limit := figures[name], limits[name].value; value > limit {
			above = append(above, fmt.Sprintf("%s: %d, limit %d", name, value, limit))
		}
	}
	return above
}

func writeLimits(figures map[string]int, before map[string]limit, why string) error {
	if above := exceeded(figures, before); len(above) > 0 && why == "" {
		return fmt.Errorf("these figures rise, so -update needs -why \"REASON\":\n  %s", strings.Join(above, "\n  "))
	}
	return os.WriteFile(file, []byte(header+formatLimits(figures, before, why)), 0o644)
}

func formatLimits(figures map[string]int, before map[string]limit, why string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		value, reason := figures[name], ""
		switch old := before[name]; {
		case value > old.value:
			reason = why
		case value == old.value:
			reason = old.why
		}
		line := fmt.Sprintf("%-36s %6d", name, value)
		if reason != "" {
			line += "  # " + reason
		}
		fmt.Fprintln(&text, line)
	}
	return text.String()
}
