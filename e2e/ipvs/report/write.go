package report

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Write writes results to a file, and their tables into a page.
func Write(file, page string, results []byte) error {
	var r Results
	if err := json.Unmarshal(results, &r); err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	if err := os.WriteFile(file, results, 0o644); err != nil || page == "" {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	updated, err := Insert(string(text), r)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

const (
	begin = "<!-- begin measured -->\n"
	end   = "<!-- end measured -->\n"
)

// Insert returns a page with the tables of results between its marks.
func Insert(page string, r Results) (string, error) {
	before, rest, found := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("a page without %q and %q has no place for the tables", begin, end)
	}
	return before + begin + "\n" + Tables(r) + "\n" + end + after, nil
}

// Tables are what all moves together cost, by phase, and what was lost with which error.
func Tables(r Results) string {
	var b strings.Builder
	var names []string
	for _, m := range r.Moves {
		names = append(names, "`"+m.Scheduler+"`")
	}
	all := sum(r.Moves)
	fmt.Fprintf(&b, "Linux %s; schedulers of IPVS: %s. Requests that failed, of all:\n\n", r.Kernel, strings.Join(names, ", "))
	row(&b, "|", func(i int) string { return " " + all[i].Name + " |" }, len(all))
	row(&b, "|---|", func(int) string { return "---:|" }, len(all))
	for k, c := range all[0].Counts {
		row(&b, "| "+c.Kind+" |", func(i int) string { return " " + cell(all[i].Counts[k]) + " |" }, len(all))
	}
	return b.String()
}

func row(b *strings.Builder, first string, text func(int) string, n int) {
	if first == "|" {
		first = "| |"
	}
	b.WriteString(first)
	for i := range n {
		b.WriteString(text(i))
	}
	b.WriteString("\n")
}

func cell(c Count) string {
	if c.Requests == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d of %d", c.Failed, c.Requests)
	if c.Flows > 0 {
		text = fmt.Sprintf("%d of %d broken", c.Broken, c.Flows)
	}
	if c.Moved > 0 {
		text += fmt.Sprintf(", %d moved", c.Moved)
	}
	return text
}

// sum adds the counts of all moves.
func sum(moves []Move) []Phase {
	var all []Phase
	for i, m := range moves {
		for p, phase := range m.Phases {
			if i == 0 {
				all = append(all, Phase{Name: phase.Name, Counts: append([]Count(nil), phase.Counts...)})
				continue
			}
			for k, c := range phase.Counts {
				all[p].Counts[k].add(c)
			}
		}
	}
	return all
}

func (c *Count) add(o Count) {
	c.Requests += o.Requests
	c.Failed += o.Failed
	c.Flows += o.Flows
	c.Broken += o.Broken
	c.Moved += o.Moved
}
