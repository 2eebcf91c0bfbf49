package rewrite

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

type splice struct {
	from, to int // offsets
	with     string
}

// editor collects the splices of a change. After an error, the first one counts.
type editor struct {
	Change
	text    []byte
	lines   []int // offset of each line
	splices []splice
	err     error
}

func newEditor(c Change, text []byte) *editor {
	e := &editor{Change: c, text: text, lines: []int{0}}
	for i, c := range text {
		if c == '\n' {
			e.lines = append(e.lines, i+1)
		}
	}
	return e
}

func (e *editor) fail(format string, args ...any) { e.err = cmp.Or(e.err, fmt.Errorf(format, args...)) }

func (e *editor) applySplices() []byte {
	slices.SortStableFunc(e.splices, func(a, b splice) int { return b.from - a.from })
	out := slices.Clone(e.text)
	for _, s := range e.splices {
		out = slices.Replace(out, s.from, s.to, []byte(s.with)...)
	}
	return out
}

func (e *editor) addSplice(from, to int, with string) {
	e.splices = append(e.splices, splice{from, to, with})
}

func (e *editor) insert(at int, text string) { e.addSplice(at, at, text) }

// editBalance makes the splices for a Balance, and returns its servers afterwards.
func (e *editor) editBalance(n *yaml.Node) ([]server, error) {
	key, backends := valueOf(n, "backends")
	if backends == nil {
		return nil, errors.New("has no field backends: add it by hand")
	}
	if backends.Kind == yaml.AliasNode {
		return nil, errors.New("has an alias of YAML as backends: edit the file by hand")
	}
	entries, servers := serversOf(backends)
	found := e.matchingServers(servers)
	want := slices.Clone(servers)
	pool := poolOf(entries)
	switch {
	case len(found) == 0 && !e.Add && pool != "":
		e.fail("has no server %s of its own: it has the ones of Servers %s, which other Balances may have, too: edit that object", e.Address, pool)
	case e.Remove && len(found) > 0:
		for _, i := range slices.Backward(found) {
			want = slices.Delete(want, i, i+1)
		}
		e.remove(key, backends, found)
	case e.Remove:
	case len(found) == 0 && e.Add:
		s := server{e.Address, e.Port, 1}
		if e.Weight != nil {
			s.weight = *e.Weight
		}
		want = append(want, s)
		e.add(key, backends, s)
	case len(found) == 0:
		e.fail("has no server %s", e.Address)
	}
	for _, i := range found {
		if !e.Remove && e.Weight != nil && want[i].weight != *e.Weight {
			want[i].weight = *e.Weight
			e.setWeight(entries[i], *e.Weight)
		}
	}
	return want, e.err
}

func (e *editor) setWeight(n *yaml.Node, weight int) {
	from, to := e.spanOf(n)
	if n.Kind == yaml.ScalarNode {
		e.addSplice(from, to, e.weightedEntry(string(e.text[from:to]), weight))
		return
	}
	if _, d := valueOf(n, "drain"); d != nil && d.Value == "true" && weight > 0 {
		e.replaceScalar(d, "false")
	}
	_, w := valueOf(n, "weight")
	key, address := valueOf(n, "address")
	switch {
	case w != nil:
		e.replaceScalar(w, strconv.Itoa(weight))
	case key == nil:
		e.fail("has an entry without an address")
	case n.Style&yaml.FlowStyle != 0:
		e.insert(e.endOf(address), fmt.Sprintf(", %s: %d", e.quoteKey("weight"), weight))
	default:
		e.insert(e.lineEnd(e.endOf(address)), fmt.Sprintf("\n%*sweight: %d", key.Column-1, "", weight))
	}
}

func (e *editor) replaceScalar(n *yaml.Node, with string) {
	from, to := e.spanOf(n)
	e.addSplice(from, to, with)
}

// weightedEntry returns an entry with an address, as the file has it, and a weight.
func (e *editor) weightedEntry(address string, weight int) string {
	return fmt.Sprintf("{%s: %s, %s: %d}", e.quoteKey("address"), address, e.quoteKey("weight"), weight)
}

func (e *editor) quoteKey(text string) string {
	if e.JSON {
		return strconv.Quote(text)
	}
	return text
}

func (e *editor) newEntry(s server) string {
	text := s.address.String()
	if s.port != 0 {
		text = netip.AddrPortFrom(s.address, s.port).String()
	}
	if e.JSON || s.address.Is6() {
		text = strconv.Quote(text)
	}
	if s.weight != 1 {
		text = e.weightedEntry(text, s.weight)
	}
	return text
}

func (e *editor) add(key, backends *yaml.Node, s server) {
	entry := e.newEntry(s)
	if backends.Tag == "!!null" {
		e.insert(e.behindColon(key), " ["+entry+"]")
		return
	}
	from, to := e.spanOf(backends)
	switch isFlow := backends.Style&yaml.FlowStyle != 0; {
	case backends.Kind == yaml.MappingNode && !isFlow:
		e.fail("has one server without a list: write a list")
	case backends.Kind != yaml.SequenceNode:
		e.addSplice(from, to, "["+string(e.text[from:to])+", "+entry+"]")
	case len(backends.Content) == 0:
		e.addSplice(from+1, to-1, entry)
	case isFlow:
		e.insert(e.endOf(backends.Content[len(backends.Content)-1]), ", "+entry)
	default:
		last := backends.Content[len(backends.Content)-1]
		e.insert(e.lineEnd(e.endOf(last)), "\n"+e.indent(last)+"- "+entry)
	}
}

func (e *editor) remove(key, backends *yaml.Node, found []int) {
	from, to := e.spanOf(backends)
	isFlow, all := backends.Style&yaml.FlowStyle != 0, len(found) == len(backends.Content)
	if backends.Kind != yaml.SequenceNode || all && isFlow {
		e.addSplice(from, to, "[]")
		return
	}
	if isFlow {
		e.removeFromFlow(backends.Content, found)
		return
	}
	for _, i := range found {
		n := backends.Content[i]
		e.indent(n) // or it fails
		e.addSplice(e.lines[n.Line-1], min(e.lineEnd(e.endOf(n))+1, len(e.text)), "")
	}
	if all {
		e.insert(e.behindColon(key), " []")
	}
}

// removeFromFlow removes some, not all, entries of a list in brackets, each with one comma.
func (e *editor) removeFromFlow(all []*yaml.Node, found []int) {
	for _, i := range found {
		from, to := e.spanOf(all[i])
		if slices.Index(found, i) < i { // an entry before it stays
			e.addSplice(e.endOf(all[i-1]), to, "")
			continue
		}
		next, _ := e.spanOf(all[i+1]) // there is one, because one stays
		e.addSplice(from, next, "")
	}
}

// indent returns what is before the dash of an entry of a block list.
func (e *editor) indent(n *yaml.Node) string {
	from, _ := e.spanOf(n)
	spaces, dash := strings.CutSuffix(strings.TrimRight(string(e.text[e.lines[n.Line-1]:from]), " "), "-")
	if !dash || strings.TrimLeft(spaces, " ") != "" {
		e.fail("line %d: is not an entry on lines of its own", n.Line)
	}
	return spaces
}

func (e *editor) behindColon(key *yaml.Node) int {
	end := e.endOf(key)
	return end + bytes.IndexByte(e.text[end:], ':') + 1
}

// lineEnd returns the offset of the end of the line of an offset.
func (e *editor) lineEnd(at int) int {
	if length := bytes.IndexByte(e.text[at:], '\n'); length < 0 {
		at = len(e.text)
	} else {
		at += length
	}
	return len(bytes.TrimSuffix(e.text[:at], []byte("\r")))
}

func (e *editor) endOf(n *yaml.Node) int {
	_, to := e.spanOf(n)
	return to
}

// spanOf returns where a node begins and ends in the text.
func (e *editor) spanOf(n *yaml.Node) (from, to int) {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		e.fail("line %d: has an anchor or an alias of YAML", n.Line)
	}
	from = e.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(e.text[from:])
		from += size
	}
	switch {
	case n.Kind == yaml.ScalarNode:
		return from, e.scalarEnd(n, from)
	case len(n.Content) > 0:
		to = e.endOf(n.Content[len(n.Content)-1])
	default:
		to = min(from+1, len(e.text))
	}
	if n.Style&yaml.FlowStyle != 0 {
		to = e.flowEnd(n, to)
	}
	return from, to
}

// Texts in quotes: of the first kind, a backslash keeps the character behind it, and of the second, two quotes are one.
var (
	doubleQuoted = regexp.MustCompile(`^"(?s:\\.|[^"\\])*"`)
	singleQuoted = regexp.MustCompile(`^'(''|[^'])*'`)
)

func (e *editor) scalarEnd(n *yaml.Node, from int) int {
	rest := e.text[from:]
	length := 0
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		length = len(doubleQuoted.Find(rest))
	case n.Style&yaml.SingleQuotedStyle != 0:
		length = len(singleQuoted.Find(rest))
	case bytes.HasPrefix(rest, []byte(n.Value)):
		return from + len(n.Value)
	}
	if length == 0 {
		e.fail("line %d: has a text of several lines, or with a tag", n.Line)
	}
	return from + length
}

// flowEnd returns the offset behind the bracket that closes a list or mapping.
func (e *editor) flowEnd(n *yaml.Node, at int) int {
	closing := byte(']')
	if n.Kind == yaml.MappingNode {
		closing = '}'
	}
	for ; at < len(e.text); at++ {
		switch c := e.text[at]; {
		case c == closing:
			return at + 1
		case c == '#':
			at = e.lineEnd(at)
		case strings.IndexByte(" \n\r\t,", c) < 0:
			e.fail("line %d: has a list that cannot be read", n.Line)
			return at
		}
	}
	e.fail("line %d: has a list without an end", n.Line)
	return at
}
