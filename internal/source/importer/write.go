package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Text returns the Balances as a file for nftproxy run -f. A Balance that is no valid one
// is there as a comment with its problem.
func (c *Config) Text(name string) (string, error) {
	for {
		text, first := c.write(name)
		if len(first) == 0 {
			return text, nil
		}
		in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
		var problems manifest.Errors
		if err == nil {
			for _, w := range in.Warnings {
				if b := balanceAt(first, w.Line); b != nil {
					b.noteChange(nil, "warning: %s", w.Err)
				}
			}
			c.sharePools()
			text, _ = c.write(name)
			return text, nil
		} else if !errors.As(err, &problems) {
			return "", err
		}
		found := false
		for _, p := range problems {
			if b := balanceAt(first, p.Line); b != nil && b.Problem == "" {
				b.Problem, found = p.Err.Error(), true
			}
		}
		if !found {
			return "", fmt.Errorf("read what was written: %w", err)
		}
	}
}

// place is where a Balance begins in the text.
type place struct {
	line int
	*Balance
}

func balanceAt(places []place, line int) (found *Balance) {
	for _, p := range places {
		if p.line <= line {
			found = p.Balance
		}
	}
	return found
}

func (c *Config) write(name string) (string, []place) {
	var out strings.Builder
	var places []place
	writeComment(&out, "Balances of "+name+". Lines without an equivalent are comments, with their number in it.")
	for _, b := range c.Balances {
		if b.Problem != "" {
			writeComment(&out, "Not used: "+b.Origin+": "+b.Problem)
		}
	}
	writeNotes(&out, c.Notes, true)
	texts := make([]string, len(c.Balances))
	for i, b := range c.Balances {
		if b.Kind == "" {
			continue // lines that are no Balance
		}
		var err error
		if texts[i], err = b.Balance.Text(); err != nil && b.Problem == "" {
			b.Problem = err.Error() // YAML has no text for a value, such as one with control characters
		}
	}
	for _, p := range c.Pools {
		text, _ := p.Text() // its Balances had a text with the same servers
		out.WriteString("---\n" + text)
	}
	if !slices.ContainsFunc(c.Balances, func(b *Balance) bool { return b.Problem == "" }) {
		writeComment(&out, "No Balance of it can be used as it is.")
	}
	for i, b := range c.Balances {
		if b.Problem == "" {
			places = append(places, place{strings.Count(out.String(), "\n") + 1, b})
			out.WriteString("---\n")
		} else {
			out.WriteString("#\n")
		}
		writeComment(&out, b.Origin)
		writeNotes(&out, b.Notes, true)
		writeNotes(&out, b.Notes, false)
		if b.Problem == "" {
			out.WriteString(texts[i])
			continue
		}
		writeComment(&out, "Not used: "+b.Problem)
		for line := range strings.Lines(texts[i]) {
			writeComment(&out, "  "+strings.TrimSuffix(line, "\n"))
		}
	}
	if slices.ContainsFunc(c.Notes, func(n Note) bool { return !n.Differs }) {
		writeComment(&out, "Lines of no Balance:")
		writeNotes(&out, c.Notes, false)
	}
	return out.String(), places
}

func writeNotes(out *strings.Builder, notes []Note, differs bool) {
	for _, n := range notes {
		if n.Differs != differs {
			continue
		}
		text := ""
		if n.Differs {
			text = "Differs: "
		}
		if n.Text != "" {
			text += fmt.Sprintf("%d: %s", n.Line, n.Text)
			if n.Why != "" {
				n.Why = "  (" + n.Why + ")"
			}
		}
		writeComment(out, text+n.Why)
	}
}

// writeComment writes a line whose text cannot end it.
func writeComment(out *strings.Builder, text string) {
	out.WriteString("# " + terminal.Printable(text) + "\n")
}
