package conntest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Report has the results of a test.
type Report struct {
	Of string `json:"of"` // what was tested
	Counts
	Seconds float64   `json:"seconds"`
	Cases   []*Result `json:"cases"` // failed ones first
	Notes   []string  `json:"notes,omitempty"`
	// Nodes are all that were tested, in a cluster, and Untested the ones that could not be.
	Nodes    []Node   `json:"nodes,omitempty"`
	Untested []Reason `json:"untested,omitempty"`
	// Image is the one that the clients in a cluster ran, with its digest.
	Image string `json:"image,omitempty"`
}

// Counts are numbers of cases.
type Counts struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

func (n *Counts) add(s State) {
	switch s {
	case Passed:
		n.Passed++
	case NotPassed:
		n.Failed++
	default:
		n.Skipped++
	}
}

// Node counts the cases of a node.
type Node struct {
	Name string `json:"name"`
	Counts
}

// Reason is why a node was not tested.
type Reason struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// Complete reports whether all cases have passed, or were left out, and all nodes were tested.
func (r *Report) Complete() bool { return r.Failed+len(r.Untested) == 0 }

// NewReport returns the report on results, which it sorts.
func NewReport(of string, results []*Result, seconds float64) *Report {
	r := &Report{Of: of, Cases: results, Seconds: seconds}
	slices.SortStableFunc(r.Cases, (*Result).Compare)
	for _, c := range r.Cases {
		i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Name == c.Node })
		if i < 0 {
			i, r.Nodes = len(r.Nodes), append(r.Nodes, Node{Name: c.Node})
		}
		r.Nodes[i].add(c.State)
		r.add(c.State)
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Name, b.Name)) })
	if len(r.Nodes) == 1 && r.Nodes[0].Name == "" {
		r.Nodes = nil // it is this machine
	}
	return r
}

// Print writes the report as text: a line for each case, then why some have failed. Of the cases of a
// cluster, only these that have not passed have a line, unless all is set.
func (r *Report) Print(w io.Writer, all, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	colour := terminal.Green
	if !r.Complete() {
		colour = terminal.Red
	}
	p.Painted(colour, "%s: %s", r.Of, r.counts())
	for _, n := range r.Notes {
		p.Line("note: %s", n)
	}
	for _, u := range r.Untested {
		p.Painted(terminal.Red, "not tested: %s: %s", u.Node, u.Reason)
	}
	r.nodes(p)
	r.table(p, all || len(r.Nodes) == 0)
	for _, c := range r.Cases {
		if all || c.State == NotPassed || c.Node == "" {
			r.reasons(p, c)
		}
	}
	r.skips(p, all)
	return p.Flush()
}

func (r *Report) nodes(p *terminal.Printer) {
	rows := [][]string{{"NODE", "PASSED", "FAILED", "SKIPPED"}}
	for _, n := range r.Nodes {
		rows = append(rows, []string{n.Name, fmt.Sprint(n.Passed), fmt.Sprint(n.Failed), fmt.Sprint(n.Skipped)})
	}
	p.Section(rows)
}

func (r *Report) table(p *terminal.Printer, all bool) {
	rows := [][]string{{"RESULT", "FROM", "FRONTEND", "EXPECTED", "GOT"}}
	if len(r.Nodes) > 0 {
		rows = [][]string{{"RESULT", "NODE", "SERVICE", "FROM", "FRONTEND", "EXPECTED", "GOT"}}
	}
	for _, c := range r.Cases {
		if !all && c.State != NotPassed {
			continue
		}
		row := []string{string(c.State), string(c.From), c.Target(), c.Expected.String(), c.Got}
		if len(r.Nodes) > 0 {
			row = slices.Insert(row, 1, c.Node, c.Service)
		}
		rows = append(rows, row)
	}
	p.Section(rows)
}

func (r *Report) skips(p *terminal.Printer, all bool) {
	if all || len(r.Nodes) == 0 {
		return
	}
	counts := make(map[string]int)
	for _, c := range r.Cases {
		if c.State == NotTried {
			counts[c.Skip]++
		}
	}
	for i, why := range slices.Sorted(maps.Keys(counts)) {
		if i == 0 {
			p.Line("")
		}
		p.Painted(terminal.Yellow, "%s skipped: %s", terminal.Count(counts[why], "case"), why)
	}
}

func (r *Report) reasons(p *terminal.Printer, c *Result) {
	if len(c.Reasons) == 0 {
		return
	}
	colour := terminal.Red
	if c.State == NotTried {
		colour = terminal.Yellow
	}
	p.Line("")
	p.Painted(colour, "%s: %s", c.State, c.Name())
	for _, why := range c.Reasons {
		p.Line("  %s", why)
	}
	if c.State == NotPassed {
		for _, n := range c.Expected.Notes {
			p.Line("  note: %s", n)
		}
	}
}

func (r *Report) counts() string {
	text := fmt.Sprintf("%d passed", r.Passed)
	add := func(n int, what string) {
		if n > 0 {
			text += ", " + what
		}
	}
	add(r.Failed, fmt.Sprintf("%d failed", r.Failed))
	add(r.Skipped, fmt.Sprintf("%d skipped", r.Skipped))
	add(len(r.Nodes), "on "+terminal.Count(len(r.Nodes), "node"))
	add(len(r.Untested), terminal.Count(len(r.Untested), "node")+" not tested")
	return text
}

// Name names a case: "default/web:http, ClusterIP tcp 10.96.0.10:80 from the namespace (affinity)".
func (c *Case) Name() string {
	name := fmt.Sprintf("%s, %s from %s", c.Service, c.Target(), c.From)
	if c.Node != "" {
		name += " of " + c.Node
	}
	if f := c.Features(); len(f) > 0 {
		name += " (" + strings.Join(f, ", ") + ")"
	}
	return name
}
