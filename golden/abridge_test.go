package golden

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
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
// of every ruleset, and sets and chains that the skeleton lacks or has in another form.
// Comments name what there is of the optional part, and what there is not of the constant
// one. Together with the skeleton this is the whole ruleset.
func (s *skeleton) abridge(tables []*table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s {\n", t.head)
		var same, missing []string
		for i := range t.objects {
			if o := &t.objects[i]; !s.abridgeObject(&b, t.head, o) {
				same = append(same, o.head)
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
const width = 112

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

// abridgeObject prints an object, or reports that it is one of the optional skeleton as it
// stands there.
func (s *skeleton) abridgeObject(b *strings.Builder, tableHead string, o *object) (shown bool) {
	base := findObject(s.constant, tableHead, o.head)
	optional := base == nil
	if optional {
		base = findObject(s.optional, tableHead, o.head)
	}
	elements := o.elements
	if strings.HasPrefix(o.head, "map ") && strings.HasSuffix(o.head, "endpoints") {
		elements = foldSlots(elements)
	}
	if o.head == "map lanes" && base != nil { // it is never empty
		if n := len(base.elements); len(elements) >= n && slices.Equal(elements[:n], base.elements) {
			elements = elements[n:]
		}
	}
	if base == nil {
		printObject(b, &object{o.head, o.body, elements})
		return true
	}
	different := difference(o.body, base.body)
	switch {
	case len(different)+len(elements) == 0:
		return !optional
	case len(different) < len(o.body):
		printObject(b, &object{o.head, slices.Concat(different, elements), nil})
	default:
		printObject(b, &object{o.head, o.body, elements})
	}
	return true
}

// printObject prints an object, in one line if that is short.
func printObject(b *strings.Builder, o *object) {
	lines := o.lines()
	short := strings.Join(lines, "; ")
	if len(lines) > 0 && strings.HasSuffix(lines[0], ",") {
		short = strings.TrimSuffix(strings.Join(lines, " "), ",")
	}
	if len(o.elements) == 0 && len(o.head)+len(short) <= width {
		fmt.Fprintf(b, "\t%s { %s }\n", o.head, short)
		return
	}
	fmt.Fprintf(b, "\t%s {\n%s\t}\n", o.head, indent(lines))
}

// difference returns the lines that the skeleton lacks, behind "+" and their number, and
// those that only the skeleton has, behind "-" and their number there.
func difference(lines, base []string) (out []string) {
	next := 0 // of base
	skip := func(to int) {
		for ; next < to; next++ {
			out = append(out, fmt.Sprintf("-%d %s", next+1, base[next]))
		}
	}
	for i, line := range lines {
		if n := slices.Index(base[next:], line); n >= 0 {
			skip(next + n)
			next++
			continue
		}
		for next < len(base) && !slices.Contains(lines[i:], base[next]) {
			skip(next + 1)
		}
		out = append(out, fmt.Sprintf("+%d %s", i+1, line))
	}
	skip(len(base))
	return out
}

// manySlots is more slots than a frontend of a case has without a table of Maglev.
const manySlots = 32

// cutSlot splits the element of a slot, such as "10.96.0.10 . tcp . 80 . 0:1 : 10.0.0.1 . 80,"
func cutSlot(element string) (frontend, slot, endpoint string) {
	key, endpoint, _ := strings.Cut(element, " : ")
	i := max(0, strings.LastIndex(key, " . "))
	return key[:i], strings.TrimPrefix(key[i:], " . "), strings.TrimSuffix(endpoint, ",")
}

// foldSlots replaces the slots of a frontend by lines that list the endpoints of several
// ones. Of many slots it leaves one line, which has the number of slots of each endpoint,
// and a sum that depends on their order.
func foldSlots(elements []string) (out []string) {
	for rest := elements; len(rest) > 0; {
		n := 1
		for n < len(rest) && follows(rest[n-1], rest[n]) {
			n++
		}
		group := rest[:n]
		rest = rest[n:]
		if n >= manySlots {
			out = append(out, sumOf(group))
		} else {
			out = append(out, listed(group)...)
		}
	}
	return out
}

// follows reports whether an element is the next slot of the same frontend.
func follows(previous, element string) bool {
	frontend, slot, _ := cutSlot(previous)
	f, s, _ := cutSlot(element)
	// Slots have the numbers 0:1, 0:2 and so on, and 10:1 in the table of clients outside of
	// the cluster; of a range of ports 1 and so on.
	table, n := cutNumber(slot)
	t, m := cutNumber(s)
	return f == frontend && t == table && m == n+1
}

// cutNumber splits a slot such as 0:1f.
func cutNumber(slot string) (table string, number uint64) {
	i := strings.LastIndex(slot, ":") + 1
	base := 16
	if i == 0 {
		base = 10
	}
	number, _ = strconv.ParseUint(slot[i:], base, 64)
	return slot[:i], number
}

// listed returns lines with the endpoints of slots that follow each other.
func listed(group []string) (out []string) {
	frontend, first, line := cutSlot(group[0])
	last := first
	end := func() {
		if first != last {
			first += " to " + last
		}
		out = append(out, fmt.Sprintf("%s . %s : %s,", frontend, first, line))
	}
	for _, e := range group[1:] {
		_, slot, endpoint := cutSlot(e)
		if len(frontend)+len(line)+len(endpoint)+len(" . 10:11 to 10:12 : , ") > width {
			end()
			first, line = slot, endpoint
		} else {
			line += ", " + endpoint
		}
		last = slot
	}
	end()
	return out
}

// sumOf returns one line for all slots of a frontend.
func sumOf(group []string) string {
	slots := make(map[string]int)
	for _, e := range group {
		_, _, endpoint := cutSlot(e)
		slots[endpoint]++
	}
	frontend, first, _ := cutSlot(group[0])
	_, last, _ := cutSlot(group[len(group)-1])
	line := fmt.Sprintf("%s . %s to %s : sum %08x", frontend, first, last, crc32.ChecksumIEEE([]byte(strings.Join(group, ""))))
	for _, e := range slices.Sorted(maps.Keys(slots)) {
		line += fmt.Sprintf(", %d × %s", slots[e], e)
	}
	return line
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
