package conntest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Report has the results of a test.
type Report struct {
	Of      string    `json:"of"` // what was tested
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Skipped int       `json:"skipped"`
	Seconds float64   `json:"seconds"`
	Cases   []*Result `json:"cases"` // failed ones first
	Notes   []string  `json:"notes,omitempty"`
}

// NewReport returns the report on results, which it sorts.
func NewReport(of string, results []*Result, seconds float64) *Report {
	r := &Report{Of: of, Cases: results, Seconds: seconds}
	slices.SortStableFunc(r.Cases, (*Result).Compare)
	for _, c := range r.Cases {
		switch c.State {
		case Passed:
			r.Passed++
		case NotPassed:
			r.Failed++
		default:
			r.Skipped++
		}
	}
	return r
}

// JSON writes the report.
func (r *Report) JSON(w io.Writer) error { return terminal.JSON(w, r) }

// Print writes the report as text: a line for each case, then why some have failed.
func (r *Report) Print(w io.Writer, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	colour := terminal.Green
	if r.Failed > 0 {
		colour = terminal.Red
	}
	p.Painted(colour, "%s: %s", r.Of, r.counts())
	for _, n := range r.Notes {
		p.Line("note: %s", n)
	}
	p.Line("")
	rows := [][]string{{"RESULT", "FROM", "FRONTEND", "EXPECTED", "GOT"}}
	for _, c := range r.Cases {
		rows = append(rows, []string{string(c.State), string(c.From), c.Target(), c.Expected.String(), c.Got})
	}
	p.Table("", rows)
	for _, c := range r.Cases {
		r.reasons(p, c)
	}
	return p.Flush()
}

// reasons writes why a case has not passed.
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
	parts := []string{fmt.Sprintf("%d passed", r.Passed)}
	if r.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", r.Failed))
	}
	if r.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", r.Skipped))
	}
	return strings.Join(parts, ", ")
}

// Name names a case: "default/web:http, ClusterIP tcp 10.96.0.10:80 from the namespace (affinity)".
func (c *Case) Name() string {
	name := fmt.Sprintf("%s, %s from %s", c.Service, c.Target(), c.From)
	if f := c.Features(); len(f) > 0 {
		name += " (" + strings.Join(f, ", ") + ")"
	}
	return name
}
