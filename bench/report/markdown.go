package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// grid is a table. The first column is of text, the others are of numbers. An
// empty cell was not measured.
type grid struct {
	head []string
	rows [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// markdown returns the table as Markdown whose columns are aligned also as
// text.
func (g *grid) markdown() string {
	widths := make([]int, len(g.head))
	for _, row := range append([][]string{g.head}, g.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 2)
		}
	}
	var out strings.Builder
	writeRow(&out, g.head, widths)
	for i, w := range widths {
		if i == 0 {
			fmt.Fprintf(&out, "|%s|", strings.Repeat("-", w+2))
			continue
		}
		fmt.Fprintf(&out, "%s:|", strings.Repeat("-", w+1))
	}
	out.WriteString("\n")
	for _, row := range g.rows {
		writeRow(&out, row, widths)
	}
	return out.String()
}

func writeRow(out *strings.Builder, row []string, widths []int) {
	for i, cell := range row {
		padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i == 0 {
			fmt.Fprintf(out, "| %s%s |", cell, padding)
			continue
		}
		fmt.Fprintf(out, " %s%s |", padding, cell)
	}
	out.WriteString("\n")
}
