package golden

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// table is one table of a printed ruleset.
type table struct {
	head    string // "table ip nftproxy"
	objects []object
}

// object is a set, a map or a chain.
type object struct {
	head     string   // "chain prerouting"
	body     []string // the declaration, or the rules
	elements []string // of a set
}

// findObject returns an object of a table of this name.
func findObject(tables []*table, name, head string) *object {
	for _, t := range tables {
		for i := range t.objects {
			if t.head == name && t.objects[i].head == head {
				return &t.objects[i]
			}
		}
	}
	return nil
}

// split reads a printed ruleset. It fails where it would lose anything.
func split(t *testing.T, text string) []*table {
	t.Helper()
	var tables []*table
	var o *object
	lines := &[]string{} // where the next line of the object belongs
	for line := range strings.Lines(text) {
		head, opens := strings.CutSuffix(strings.TrimSpace(line), " {")
		switch depth := len(line) - len(strings.TrimLeft(line, "\t")); {
		case depth == 0 && opens:
			tables = append(tables, &table{head: head})
		case depth == 1 && opens:
			last := tables[len(tables)-1]
			last.objects = append(last.objects, object{head: head})
			o = &last.objects[len(last.objects)-1]
			lines = &o.body
		case depth == 2 && opens:
			lines = &o.elements
		case depth >= 2 && head != "}":
			*lines = append(*lines, head)
		}
	}
	if again := join(tables); again != text {
		t.Fatalf("the ruleset is not printed as it was read:\n%s\nread:\n%s", text, again)
	}
	return tables
}

// join prints what split reads.
func join(tables []*table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s\ndelete %s\n%s {\n", t.head, t.head, t.head)
		for i, o := range t.objects {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "\t%s {\n%s\t}\n", o.head, indent(o.lines()))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// lines returns the object without its head.
func (o *object) lines() []string {
	if len(o.elements) == 0 {
		return o.body
	}
	lines := append(slices.Clone(o.body), "elements = {")
	for _, e := range o.elements {
		lines = append(lines, "\t"+e)
	}
	return append(lines, "}")
}

// indent returns the lines as those inside an object.
func indent(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("\t\t" + line + "\n")
	}
	return b.String()
}
