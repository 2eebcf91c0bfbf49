package golden

import (
	"fmt"
	"hash/crc32"
	"maps"
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

// The cases that the others refer to.
const (
	skeletonPath = "skeleton.txtar" // shown whole
	optionalPath = "skeleton-optional.txtar"
	rangesPath   = "skeleton-ranges.txtar"
)

// skeleton is what cases need not show: empty sets, and chains, of every
// ruleset and of some.
type skeleton struct{ constant, optional []*table }

func readSkeleton(t *testing.T) *skeleton {
	t.Helper()
	whole := func(path string) []*table { return split(t, text(t, read(t, path).phases[0].rules)) }
	return &skeleton{whole(skeletonPath), slices.Concat(whole(optionalPath), whole(rangesPath))}
}

// show returns what a case shows of its ruleset.
func (s *skeleton) show(t *testing.T, c *testCase) string {
	t.Helper()
	whole := text(t, c.phases[0].rules)
	switch c.path {
	case skeletonPath:
		return whole
	case optionalPath, rangesPath:
		s = &skeleton{constant: s.constant}
	}
	return s.abridge(split(t, whole))
}

// abridge prints a ruleset without what the skeleton says: all elements except those
// of every ruleset, and
// sets and chains that the skeleton lacks or has in another form. Comments name
// what there is of the optional part, and what there is not of the constant one.
// Together with the skeleton this is the whole ruleset.
func (s *skeleton) abridge(tables []*table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s {\n", t.head)
		for i := range t.objects {
			s.abridgeObject(&b, t.head, &t.objects[i])
		}
		for _, c := range s.constant {
			for _, o := range c.objects {
				if c.head == t.head && findObject(tables, t.head, o.head) == nil {
					fmt.Fprintf(&b, "\t# no %s\n", o.head)
				}
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (s *skeleton) abridgeObject(b *strings.Builder, tableHead string, o *object) {
	base := findObject(s.constant, tableHead, o.head)
	optional := base == nil
	if optional {
		base = findObject(s.optional, tableHead, o.head)
	}
	same := base != nil && slices.Equal(o.body, base.body)
	if strings.HasPrefix(o.head, "map ") && strings.HasSuffix(o.head, "endpoints") {
		o = &object{o.head, o.body, foldTables(o.elements)}
	}
	if o.head == "map lanes" && base != nil { // it is never empty
		o.elements = slices.DeleteFunc(o.elements, func(e string) bool { return slices.Contains(base.elements, e) })
	}
	lines := o.lines()
	switch {
	case same && len(o.elements) > 0:
		lines = o.elements
	case same && optional:
		fmt.Fprintf(b, "\t%s # as in the skeleton\n", o.head)
		return
	case same:
		return
	case base != nil && strings.HasPrefix(o.head, "chain "):
		lines = abridgeRules(o.body, base.body)
	}
	if len(lines) == 1 && lines[0] != "..." {
		fmt.Fprintf(b, "\t%s { %s }\n", o.head, strings.TrimSuffix(lines[0], ","))
		return
	}
	fmt.Fprintf(b, "\t%s {\n%s\t}\n", o.head, indent(lines))
}

// manySlots is more slots than a frontend of a case has without a table of Maglev.
const manySlots = 32

// cutSlot splits the element of a slot, such as "10.96.0.10 . tcp . 80 . 0:1 : 10.0.0.1 . 80,"
func cutSlot(element string) (frontend, slot, endpoint string) {
	key, endpoint, _ := strings.Cut(element, " : ")
	i := max(0, strings.LastIndex(key, " . "))
	return key[:i], strings.TrimPrefix(key[i:], " . "), strings.TrimSuffix(endpoint, ",")
}

// foldTables replaces the elements of many slots of a frontend by one line, which has the
// number of slots of each endpoint, and a sum that depends on their order.
func foldTables(elements []string) []string {
	// The first number of a slot is 0, and 10 in the table of clients outside of the cluster.
	table := func(element string) string {
		frontend, slot, _ := cutSlot(element)
		first, _, found := strings.Cut(slot, ":")
		if !found { // of a range of ports
			first = ""
		}
		return frontend + " . " + first
	}
	var out []string
	for rest := elements; len(rest) > 0; {
		n := 1
		for n < len(rest) && table(rest[n]) == table(rest[0]) {
			n++
		}
		group := rest[:n]
		rest = rest[n:]
		if n < manySlots {
			out = append(out, group...)
			continue
		}
		slots := make(map[string]int)
		for _, e := range group {
			_, _, endpoint := cutSlot(e)
			slots[endpoint]++
		}
		frontend, first, _ := cutSlot(group[0])
		_, last, _ := cutSlot(group[n-1])
		line := fmt.Sprintf("%s . %s to %s : sum %08x", frontend, first, last, crc32.ChecksumIEEE([]byte(strings.Join(group, ""))))
		for _, e := range slices.Sorted(maps.Keys(slots)) {
			line += fmt.Sprintf(", %d × %s", slots[e], e)
		}
		out = append(out, line)
	}
	return out
}

// abridgeRules replaces by "..." what the skeleton has as well, up to the line
// before the next difference, if that makes it shorter.
func abridgeRules(lines, base []string) []string {
	var out []string
	rest := base
	for i, line := range lines {
		n := slices.Index(rest, line)
		if n < 0 {
			out = append(out, line)
			continue
		}
		out = append(out, missing(rest[:n])...)
		rest = rest[n+1:]
		switch after := lines[i+1:]; {
		case len(after) == 0 != (len(rest) == 0) || len(after) > 0 && after[0] != rest[0]:
			out = append(out, line) // a difference follows
		case len(out) == 0 || out[len(out)-1] != "...":
			out = append(out, "...")
		}
	}
	if out = append(out, missing(rest)...); len(out) < len(lines) {
		return out
	}
	return lines
}

// missing says that lines of the skeleton are missing.
func missing(lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, "# no "+line)
	}
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
