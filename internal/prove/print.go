package prove

import (
	"fmt"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Explained reports whether the plan explains all changes, and the wanted rules are right.
func (c *Comparison) Explained() bool { return len(c.Unsolved)+len(c.Wrong) == 0 }

// mostChanges is how many changes are printed.
const mostChanges = 200

// Text prints which packets change, and the conclusion.
func (c *Comparison) Text(out io.Writer) error {
	var b strings.Builder
	for _, list := range [][]Change{c.Changes, c.Unsolved} {
		for _, d := range list[:min(len(list), mostChanges)] {
			fmt.Fprintf(&b, "%s\n  from:   %s\n  before: %s\n  after:  %s\n", d.destinations(), d.clients(), d.Before, d.After)
			if d.Planned != "" {
				fmt.Fprintf(&b, "  the plan does not explain that: with it, %s\n", d.Planned)
			}
		}
		c.writeRest(&b, len(list))
	}
	for _, e := range c.Wrong {
		fmt.Fprintf(&b, "%s\n  must: %s\n  the rules do: %s\n", e.Class, e.Want, e.Got)
	}
	b.WriteString(c.conclusion() + "\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *Comparison) writeRest(b *strings.Builder, n int) {
	if n > mostChanges {
		fmt.Fprintf(b, "and %s\n", terminal.Count(n-mostChanges, "other change"))
	}
}

func (c *Comparison) conclusion() string {
	classes := fmt.Sprintf("%d classes of packets", c.Classes)
	switch {
	case len(c.Wrong) > 0:
		return classes + ": the rules for the files are not what behaviour.md says"
	case len(c.Unsolved) > 0:
		return fmt.Sprintf("%s: the plan does not explain %s", classes, terminal.Count(len(c.Unsolved), "change"))
	case c.Packets == 0:
		return classes + ": all packets: equal"
	}
	return fmt.Sprintf("%s, %d change as the plan says; all other packets: equal", classes, c.Packets)
}

// mostNames is how many clients, or destinations, a line names.
const mostNames = 8

func (d Change) clients() string { return terminal.List(d.From, mostNames) }

func (d Change) destinations() string { return terminal.List(d.To, mostNames) }

// Markdown prints the same for a pull request.
func (c *Comparison) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n", c.conclusion())
	if len(c.Changes)+len(c.Unsolved) > 0 {
		b.WriteString("\n| to | from | before | after | with the plan |\n|---|---|---|---|---|\n")
	}
	for _, list := range [][]Change{c.Unsolved, c.Changes} {
		for _, d := range list[:min(len(list), mostChanges)] {
			planned := "as after"
			if d.Planned != "" {
				planned = "**" + d.Planned + "**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.destinations(), d.clients(), d.Before, d.After, planned)
		}
		if len(list) > mostChanges {
			b.WriteString("\n")
			c.writeRest(&b, len(list))
		}
	}
	for _, e := range c.Wrong {
		fmt.Fprintf(&b, "\n%s must: %s; the rules do: %s\n", e.Class, e.Want, e.Got)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// JSON writes the whole comparison.
func (c *Comparison) JSON(out io.Writer) error {
	type change struct {
		To      []string `json:"to"`
		From    []string `json:"from"`
		Before  string   `json:"before"`
		After   string   `json:"after"`
		Planned string   `json:"planned,omitempty"` // the plan does not explain the change
	}
	type wrong struct {
		Packet string `json:"packet"`
		Must   string `json:"must"`
		Does   string `json:"does"`
	}
	document := struct {
		Classes   int      `json:"classes"`
		Packets   int      `json:"packets"` // classes that change
		Explained bool     `json:"explained"`
		Changes   []change `json:"changes"`
		Wrong     []wrong  `json:"wrong,omitempty"`
	}{Classes: c.Classes, Packets: c.Packets, Explained: c.Explained(), Changes: []change{}}
	for _, list := range [][]Change{c.Unsolved, c.Changes} {
		for _, d := range list {
			document.Changes = append(document.Changes, change{d.To, d.From, d.Before, d.After, d.Planned})
		}
	}
	for _, e := range c.Wrong {
		document.Wrong = append(document.Wrong, wrong{e.Class.String(), e.Want, e.Got})
	}
	return terminal.JSON(out, document)
}
