package golden

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The cases that the others refer to.
const (
	skeletonPath = "skeleton.txtar" // shown whole
	optionalPath = "skeleton-optional.txtar"
	rangesPath   = "skeleton-ranges.txtar"
	refusalsPath = "skeleton-refusals.txtar"
)

// skeleton is what cases need not show: empty sets, and chains, of every ruleset and of some.
type skeleton struct {
	constant []*table
	optional []part
}

// part is an optional skeleton.
type part struct {
	name   string
	tables []*table
}

func readSkeleton(t *testing.T) *skeleton {
	t.Helper()
	whole := func(path string) []*table { return split(t, text(t, read(t, path).phases[0].rules)) }
	s := &skeleton{constant: whole(skeletonPath)}
	for _, path := range []string{optionalPath, rangesPath, refusalsPath} { // in this order
		s.optional = append(s.optional, part{strings.TrimSuffix(path, ".txtar"), whole(path)})
	}
	return s
}

// unobserved returns the skeleton of rulesets that do not observe refused connections.
func (s *skeleton) unobserved() *skeleton {
	return &skeleton{s.constant, s.optional[:2]}
}

// show returns what a case shows of its ruleset.
func (s *skeleton) show(t *testing.T, c *testCase) string {
	t.Helper()
	whole := text(t, c.phases[0].rules)
	switch c.path {
	case skeletonPath:
		return whole
	case optionalPath, rangesPath, refusalsPath:
		return (&skeleton{constant: s.constant}).abridge(split(t, whole))
	}
	if !c.phases[0].flags.Observe.Refusals() {
		s = s.unobserved()
	}
	return s.abridge(split(t, whole))
}

// abridge prints a ruleset without what the skeleton says: all elements except those
// of every ruleset, and sets and chains that the skeleton lacks or has in another form.
// Comments name what there is of the optional part, and what there is not of the constant
// one. Together with the skeleton this is the whole ruleset.
func (s *skeleton) abridge(tables []*table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s {\n", t.head)
		var same, missing []string
		for i := range t.objects {
			if name := s.abridgeObject(&b, t, i); name != "" {
				same = append(same, name)
			}
		}
		for _, c := range s.constant {
			for _, o := range c.objects {
				if c.head == t.head && findObject(tables, t.head, o.head) == nil {
					missing = append(missing, o.head)
				}
			}
		}
		comment(&b, "as in the skeleton", same)
		comment(&b, "not here", missing)
		b.WriteString("}\n")
	}
	return b.String()
}

// width is how long a line of several elements, rules or names may be.
const width = 119

// comment names objects, in one comment or in several lines of one.
func comment(b *strings.Builder, title string, heads []string) {
	line := "# " + title + ":"
	for i, head := range heads {
		if len(line)+len(head) > width {
			fmt.Fprintf(b, "\t%s\n", line)
			line = "#"
		}
		line += " " + head
		if i < len(heads)-1 {
			line += ","
		}
	}
	if len(heads) > 0 {
		fmt.Fprintf(b, "\t%s\n", line)
	}
}

// abridgeObject prints an object of a table, unless it is as in a skeleton. It returns the
// name of one that is as in an optional skeleton.
func (s *skeleton) abridgeObject(b *strings.Builder, t *table, i int) (same string) {
	o := &t.objects[i]
	base := findObject(s.constant, t.head, o.head)
	for _, p := range s.optional {
		optional := findObject(p.tables, t.head, o.head)
		switch {
		case optional == nil:
		case base == nil:
			base, same = optional, o.head
		case len(o.elements) == 0 && !slices.Equal(o.body, base.body) && slices.Equal(o.body, optional.body):
			return o.head + " of " + p.name
		}
	}
	body, elements := o.body, o.elements
	switch {
	case strings.HasPrefix(o.head, "map ") && strings.HasSuffix(o.head, "endpoints"):
		elements = foldSlots(elements)
	case o.head == "map lanes" && base != nil: // it is never empty
		if n := len(base.elements); len(elements) >= n && slices.Equal(elements[:n], base.elements) {
			elements = elements[n:]
		}
	default:
		elements = foldRepeated(elements, t.objects[:i])
	}
	if base != nil {
		if different := difference(body, base.body); len(different) < len(body) || len(body) == 0 {
			body = different
		}
		if len(body)+len(elements) == 0 {
			return same
		}
	}
	printAbridged(b, o.head, body, elements)
	return ""
}

// printAbridged prints an object, in one line if that is short. The declaration of a set
// stands in one line anyway.
func printAbridged(b *strings.Builder, head string, body, elements []string) {
	joined := strings.Join(body, "; ")
	if !strings.HasPrefix(head, "chain ") && len(body) > 0 {
		body = []string{joined}
	}
	if len(elements) > 0 && len(body) > 0 {
		joined += "; "
	}
	joined += strings.TrimSuffix(strings.Join(elements, " "), ",")
	if len(body)+len(elements) == 1 || len(head)+len(joined) <= width {
		fmt.Fprintf(b, "\t%s { %s }\n", head, joined)
		return
	}
	fmt.Fprintf(b, "\t%s {\n%s%s\t}\n", head, indent(body), indent(elements))
}

// difference returns the lines that the skeleton lacks, behind "+" and their number, those
// that only the skeleton has, behind "-" and their number there, and those in place of
// one of the skeleton, behind "=" and their number.
func difference(lines, base []string) (out []string) {
	next := 0 // of base
	drop := func(n int) {
		for range n {
			next++
			out = append(out, fmt.Sprintf("-%d %s", next, base[next-1]))
		}
	}
	for i, line := range lines {
		gone := 0
		for next+gone < len(base) && !slices.Contains(lines[i:], base[next+gone]) {
			gone++
		}
		switch n := slices.Index(base[next:], line); {
		case n >= 0:
			drop(n)
			next++
		case gone > 0:
			drop(gone - 1)
			out = append(out, fmt.Sprintf("=%d %s", i+1, line))
			next++
		default:
			out = append(out, fmt.Sprintf("+%d %s", i+1, line))
		}
	}
	drop(len(base) - next)
	return out
}

// TestAbridge proves that a case and the skeleton together pin every line: it
// removes each line of each ruleset, and swaps it with the next one, and checks
// that the case shows a difference.
func TestAbridge(t *testing.T) {
	skeleton := readSkeleton(t)
	forEachGolden(t, func(t *testing.T, c *testCase) {
		whole := split(t, text(t, c.phases[0].rules))
		shown := skeleton.abridge(whole)
		differs := func(where string) {
			t.Helper()
			if skeleton.abridge(whole) == shown {
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

// mutate calls f after each change of a line, of long lists after some.
func mutate(lines *[]string, f func(line string)) {
	original := *lines
	defer func() { *lines = original }()
	for i := 0; i < len(original); i += 1 + len(original)/64 {
		line := original[i]
		*lines = slices.Delete(slices.Clone(original), i, i+1)
		f(line)
		if i > 0 {
			*lines = slices.Clone(original)
			(*lines)[i-1], (*lines)[i] = line, original[i-1]
			f(line)
		}
	}
}
