package machine

import (
	"fmt"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Report is the result of all checks. The names of the JSON fields are stable.
type Report struct {
	Ready    bool      `json:"ready"` // no problem was found
	Kernel   string    `json:"kernel"`
	Mode     string    `json:"mode"` // the use that the machine was checked for
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`
	Unseen   int       `json:"unseen"`
	Checks   []Finding `json:"checks"` // problems first
}

// NewReport checks a machine.
func NewReport(f *Facts, u Use) *Report {
	r := &Report{Kernel: f.Kernel, Mode: u.describeMode(), Checks: Check(f, u)}
	for _, c := range r.Checks {
		switch c.Level {
		case Problem:
			r.Problems++
		case Warning:
			r.Warnings++
		case Unseen:
			r.Unseen++
		}
	}
	r.Ready = r.Problems == 0
	return r
}

func (u Use) describeMode() string {
	switch {
	case u.BesideAnother:
		return "a node of a cluster, beside kube-proxy"
	case u.Cluster:
		return "a node of a cluster"
	}
	return "a single machine"
}

// WriteJSON writes the report as a JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	return terminal.JSON(w, r)
}

// Repository is where documentation is read.
const repository = "https://github.com/nftproxy/nftproxy/blob/main/"

var colours = [...]terminal.Colour{Problem: terminal.Red, Warning: terminal.Yellow, Unseen: terminal.Cyan, OK: terminal.Green}

// Print writes the report as text, with the verdict last.
func (r *Report) Print(w io.Writer, colour bool) error {
	p := terminal.NewPrinter(w, "")
	paint := func(l Level, text string) string { return colours[l].Paint(text, colour) }
	const margin = "         "
	for _, c := range r.Checks {
		// Escapes of colours are not printable.
		fmt.Fprintf(p, "%s  %s\n", paint(c.Level, fmt.Sprintf("%-7s", c.Level)), terminal.Printable(c.Check+": "+c.Message))
		if c.Level == OK {
			continue
		}
		if c.Remedy != "" {
			p.Line("%sdo: %s", margin, c.Remedy)
		}
		if c.Documentation != "" {
			p.Line("%ssee %s%s", margin, repository, c.Documentation)
		}
	}
	level, verdict := r.summaryLine()
	fmt.Fprintf(p, "\n%s\n", paint(level, verdict))
	return p.Flush()
}

// summaryLine is the last line.
func (r *Report) summaryLine() (Level, string) {
	counts := []string{}
	for _, c := range []struct {
		n    int
		what string
	}{{r.Problems, "problem"}, {r.Warnings, "warning"}} {
		if c.n > 0 {
			counts = append(counts, terminal.Count(c.n, c.what))
		}
	}
	if r.Unseen > 0 {
		counts = append(counts, terminal.Count(r.Unseen, "check")+" without access")
	}
	details := ""
	if len(counts) > 0 {
		details = ": " + strings.Join(counts, ", ")
	}
	switch {
	case r.Problems > 0:
		return Problem, "NOT READY as " + r.Mode + details
	case r.Unseen > 0:
		return Unseen, "no problem seen as " + r.Mode + details
	case r.Warnings > 0:
		return Warning, "ready as " + r.Mode + details
	}
	return OK, "ready as " + r.Mode
}
