package golden

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/render"
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

func (t *table) object(head string) *object {
	if i := slices.IndexFunc(t.objects, func(o object) bool { return o.head == head }); i >= 0 {
		return &t.objects[i]
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
		t.Fatalf("the text of a ruleset is printed in another way than it was read:\n%s\nread:\n%s", text, again)
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
			o.print(&b)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (o *object) print(b *strings.Builder) {
	lines := o.body
	if len(o.elements) > 0 {
		lines = slices.Concat(lines, []string{"elements = {"}, indent(o.elements), []string{"}"})
	}
	block(b, o.head, lines)
}

func block(b *strings.Builder, head string, lines []string) {
	fmt.Fprintf(b, "\t%s {\n%s\t}\n", head, strings.Join(append(indent(indent(lines)), ""), "\n"))
}

func indent(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = "\t" + line
	}
	return out
}

// abridge prints what a ruleset has beyond the skeleton: all elements, the sets
// and chains that the skeleton lacks or has in another form, and as comments
// what it alone has. With the skeleton this is the whole ruleset.
func abridge(tables, skeleton []*table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s {\n", t.head)
		base := &table{}
		if i := slices.IndexFunc(skeleton, func(s *table) bool { return s.head == t.head }); i >= 0 {
			base = skeleton[i]
		}
		for _, o := range t.objects {
			o.abridge(&b, base.object(o.head))
		}
		for _, o := range base.objects {
			if t.object(o.head) == nil {
				fmt.Fprintf(&b, "\t# no %s\n", o.head)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (o *object) abridge(b *strings.Builder, base *object) {
	switch {
	case base == nil:
		o.print(b)
	case !slices.Equal(o.body, base.body) && strings.HasPrefix(o.head, "chain "):
		block(b, o.head, abridgeRules(o.body, base.body))
	case !slices.Equal(o.body, base.body):
		o.print(b)
	case len(o.elements) > 0:
		block(b, o.head, o.elements)
	}
}

// abridgeRules replaces several lines in sequence that the skeleton has in
// sequence, too, by a comment.
func abridgeRules(lines, base []string) []string {
	var out []string
	for len(lines) > 0 {
		n, from := 0, slices.Index(base, lines[0])
		for from >= 0 && n < len(lines) && from+n < len(base) && lines[n] == base[from+n] {
			n++
		}
		if n < 2 {
			out, lines = append(out, lines[0]), lines[1:]
			continue
		}
		out = append(out, fmt.Sprintf("# lines %d-%d of %d of the skeleton", from+1, from+n, len(base)))
		lines = lines[n:]
	}
	return out
}

// skeletonPath is the case whose ruleset is shown whole.
const skeletonPath = "skeleton.txtar"

// shown returns what a case shows of a ruleset.
func (g *golden) shown(t *testing.T, rs *render.Ruleset) string {
	t.Helper()
	whole := text(t, rs)
	if g.path == skeletonPath {
		return whole
	}
	return abridge(split(t, whole), skeleton(t))
}

func skeleton(t *testing.T) []*table {
	t.Helper()
	g := read(t, skeletonPath)
	return split(t, text(t, g.render(g.input)))
}

// TestAbridge proves that a case and the skeleton pin every line: it removes
// each line of each ruleset, and swaps it with the next one, and each time the
// case shows something else.
func TestAbridge(t *testing.T) {
	base := skeleton(t)
	forEach(t, func(t *testing.T, g *golden) {
		whole := split(t, text(t, g.render(g.input)))
		shown := abridge(whole, base)
		differs := func(where string) {
			t.Helper()
			if abridge(whole, base) == shown {
				t.Errorf("a change does not show: %s", where)
			}
		}
		for _, table := range whole {
			for i, o := range table.objects {
				table.objects = slices.Delete(slices.Clone(table.objects), i, i+1)
				differs("no " + o.head)
				table.objects = slices.Insert(table.objects, i, o)
				for _, lines := range []*[]string{&table.objects[i].body, &table.objects[i].elements} {
					mutate(lines, func(line string) { differs(o.head + ": " + line) })
				}
			}
		}
	})
}

// mutate calls f after each change of a line.
func mutate(lines *[]string, f func(line string)) {
	original := *lines
	defer func() { *lines = original }()
	for i, line := range original {
		*lines = slices.Delete(slices.Clone(original), i, i+1)
		f(line)
		if i > 0 {
			*lines = slices.Clone(original)
			(*lines)[i-1], (*lines)[i] = line, original[i-1]
			f(line)
		}
	}
}
