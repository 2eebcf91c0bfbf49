// Package terminal writes text for people: what it prints has no effect on a
// terminal, whatever names it contains.
package terminal

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nftproxy/nftproxy/internal/words"
)

// Printer writes lines. Its bufio.Writer keeps the first error.
type Printer struct {
	*bufio.Writer
	Colours bool // whether [Printer.Painted] paints
	Width   int  // of the column with the names of facts
	// Words are what names of facts, formats and headings of tables are in. Arguments stay as
	// they are.
	Words words.Vocabulary

	indent string
	last   string // name of the fact printed last
}

// NewPrinter returns a printer that indents facts.
func NewPrinter(w io.Writer, indent string) *Printer {
	return &Printer{Writer: bufio.NewWriter(w), Width: len("not known"), indent: indent}
}

// Fact writes a line under a name, which is not repeated.
func (p *Printer) Fact(name, format string, args ...any) {
	p.Line("%s", p.fact(name, format, args...))
}

func (p *Printer) fact(name, format string, args ...any) string {
	shown := p.Words.Text(name)
	if name == p.last {
		shown = ""
	}
	p.last = name
	return fmt.Sprintf("%s%-*s  %s", p.indent, p.Width, shown, p.Words.Sprintf(format, args...))
}

// Painted writes a line in a colour.
func (p *Printer) Painted(c Colour, format string, args ...any) {
	fmt.Fprintln(p, c.Paint(Printable(p.Words.Sprintf(format, args...)), p.Colours))
}

// PaintedFact is Fact in a colour.
func (p *Printer) PaintedFact(c Colour, name, format string, args ...any) {
	p.Painted(c, "%s", p.fact(name, format, args...))
}

// Line writes a line.
func (p *Printer) Line(format string, args ...any) {
	fmt.Fprintln(p, Printable(p.Words.Sprintf(format, args...)))
}

// Count returns for example "1 server" or "3 servers" for the noun endpoint.
func (p *Printer) Count(n int, noun string) string { return p.Words.Count(n, noun) }

// Filled returns rows without the columns that have nothing below their heading.
func Filled(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for column := range rows[0] {
		if !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[column] != "" }) {
			continue
		}
		for i, r := range rows {
			out[i] = append(out[i], r[column])
		}
	}
	return out
}

// Section writes a table behind an empty line, if it has more than its headings.
func (p *Printer) Section(rows [][]string) {
	if len(rows) > 1 {
		p.Line("")
		p.Table("", rows)
	}
}

// Table writes rows of cells in columns, each line after an indent; the first one has headings.
// Cells are printable.
func (p *Printer) Table(indent string, rows [][]string) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for n, r := range rows {
		cells := make([]string, len(r))
		for i, c := range r {
			if n == 0 {
				c = p.Words.Text(c)
			}
			cells[i] = Printable(c)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // a strings.Builder does not fail
	for line := range strings.Lines(text.String()) {
		p.WriteString(strings.TrimRight(indent+line, " \n") + "\n")
	}
}
