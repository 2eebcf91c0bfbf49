package rewrite

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// splice replaces a part of a text.
type splice struct {
	from, to int // offsets
	with     string
}

// editor collects the splices of a change.
type editor struct {
	Change
	text    []byte
	lines   []int // offset of each line
	splices []splice
}

func linesOf(text []byte) []int {
	out := []int{0}
	for i, c := range text {
		if c == '\n' {
			out = append(out, i+1)
		}
	}
	return out
}

// applySplices returns the text with all splices.
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
	if pool := poolOf(entries); len(found) == 0 && !e.Add && pool != "" {
		return nil, fmt.Errorf("has no server %s of its own: it has the ones of Servers %s, which other Balances may have, too: edit that object", e.Address, pool)
	}
	switch {
	case e.Remove && len(found) == 0:
		return want, nil
	case e.Remove:
		want = want[:0]
		for i, s := range servers {
			if !slices.Contains(found, i) {
				want = append(want, s)
			}
		}
		return want, e.remove(key, backends, found)
	case len(found) == 0 && !e.Add:
		return nil, fmt.Errorf("has no server %s", e.Address)
	case len(found) == 0:
		s := server{e.Address, e.Port, 1}
		if e.Weight != nil {
			s.weight = *e.Weight
		}
		return append(want, s), e.add(key, backends, s)
	}
	for _, i := range found {
		if e.Weight == nil || want[i].weight == *e.Weight {
			continue
		}
		want[i].weight = *e.Weight
		if err := e.setWeight(entries[i], *e.Weight); err != nil {
			return nil, err
		}
	}
	return want, nil
}

// setWeight sets the weight of an entry.
func (e *editor) setWeight(n *yaml.Node, weight int) error {
	from, to, err := e.spanOf(n)
	if err != nil {
		return err
	}
	if n.Kind == yaml.ScalarNode {
		e.addSplice(from, to, e.weightedEntry(string(e.text[from:to]), weight))
		return nil
	}
	if _, d := valueOf(n, "drain"); d != nil && d.Value == "true" && weight > 0 {
		if err := e.replaceScalar(d, "false"); err != nil {
			return err
		}
	}
	if _, w := valueOf(n, "weight"); w != nil {
		return e.replaceScalar(w, strconv.Itoa(weight))
	}
	key, address := valueOf(n, "address")
	if key == nil {
		return errors.New("has an entry without an address")
	}
	_, end, err := e.spanOf(address)
	if err != nil {
		return err
	}
	if n.Style&yaml.FlowStyle != 0 {
		e.addSplice(end, end, ", "+e.quoteKey("weight")+": "+strconv.Itoa(weight))
		return nil
	}
	at := e.lineEnd(end)
	e.addSplice(at, at, "\n"+strings.Repeat(" ", key.Column-1)+"weight: "+strconv.Itoa(weight))
	return nil
}

// replaceScalar replaces a scalar.
func (e *editor) replaceScalar(n *yaml.Node, with string) error {
	from, to, err := e.spanOf(n)
	if err == nil {
		e.addSplice(from, to, with)
	}
	return err
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

// newEntry returns a new entry.
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

// add adds an entry after the others.
func (e *editor) add(key, backends *yaml.Node, s server) error {
	if backends.Tag == "!!null" {
		_, end, err := e.spanOf(key)
		if err == nil {
			at := end + strings.IndexByte(string(e.text[end:]), ':') + 1
			e.addSplice(at, at, " ["+e.newEntry(s)+"]")
		}
		return err
	}
	from, to, err := e.spanOf(backends)
	switch {
	case err != nil:
		return err
	case backends.Kind != yaml.SequenceNode && backends.Kind == yaml.MappingNode && backends.Style&yaml.FlowStyle == 0:
		return errors.New("has one server without a list: write a list")
	case backends.Kind != yaml.SequenceNode:
		e.addSplice(from, to, "["+string(e.text[from:to])+", "+e.newEntry(s)+"]")
		return nil
	case len(backends.Content) == 0:
		e.addSplice(from+1, to-1, e.newEntry(s))
		return nil
	}
	last := backends.Content[len(backends.Content)-1]
	_, end, err := e.spanOf(last)
	if err != nil {
		return err
	}
	if backends.Style&yaml.FlowStyle != 0 {
		e.addSplice(end, end, ", "+e.newEntry(s))
		return nil
	}
	dash, err := e.findDash(last)
	if err != nil {
		return err
	}
	at := e.lineEnd(end)
	e.addSplice(at, at, "\n"+string(e.text[e.lines[last.Line-1]:dash])+"- "+e.newEntry(s))
	return nil
}

// remove removes entries.
func (e *editor) remove(key, backends *yaml.Node, found []int) error {
	from, to, err := e.spanOf(backends)
	if err != nil {
		return err
	}
	if backends.Kind != yaml.SequenceNode || len(found) == len(backends.Content) && backends.Style&yaml.FlowStyle != 0 {
		e.addSplice(from, to, "[]")
		return nil
	}
	if backends.Style&yaml.FlowStyle != 0 {
		return e.removeFromFlow(backends.Content, found)
	}
	for _, i := range found {
		if _, err := e.findDash(backends.Content[i]); err != nil {
			return err
		}
		_, end, err := e.spanOf(backends.Content[i])
		if err != nil {
			return err
		}
		e.addSplice(e.lines[backends.Content[i].Line-1], min(e.lineEnd(end)+1, len(e.text)), "")
	}
	if len(found) < len(backends.Content) {
		return nil
	}
	_, end, err := e.spanOf(key)
	if err == nil {
		at := end + strings.IndexByte(string(e.text[end:]), ':') + 1
		e.addSplice(at, at, " []")
	}
	return err
}

// removeFromFlow removes some, not all, entries of a list in brackets, each with one comma.
func (e *editor) removeFromFlow(all []*yaml.Node, found []int) error {
	for _, i := range found {
		from, to, err := e.spanOf(all[i])
		if err != nil {
			return err
		}
		kept := i - 1 // the last entry before that stays
		for kept >= 0 && slices.Contains(found, kept) {
			kept--
		}
		if kept >= 0 {
			_, end, err := e.spanOf(all[i-1])
			if err != nil {
				return err
			}
			e.addSplice(end, to, "")
			continue
		}
		next, _, err := e.spanOf(all[i+1]) // there is one, because one stays
		if err != nil {
			return err
		}
		e.addSplice(from, next, "")
	}
	return nil
}

// findDash returns the offset of the dash of an entry of a block list.
func (e *editor) findDash(n *yaml.Node) (int, error) {
	from, _, err := e.spanOf(n)
	if err != nil {
		return 0, err
	}
	line := e.lines[n.Line-1]
	before := string(e.text[line:from])
	dash := strings.TrimRight(before, " ")
	if strings.TrimLeft(dash, " ") != "-" {
		return 0, fmt.Errorf("line %d: is not an entry on lines of its own", n.Line)
	}
	return line + len(dash) - 1, nil
}

// lineEnd returns the offset of the end of the line of an offset.
func (e *editor) lineEnd(at int) int {
	for at < len(e.text) && e.text[at] != '\n' {
		at++
	}
	if at > 0 && at <= len(e.text) && at-1 >= 0 && e.text[at-1] == '\r' {
		at--
	}
	return at
}

// spanOf returns where a node begins and ends in the text.
func (e *editor) spanOf(n *yaml.Node) (from, to int, err error) {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return 0, 0, fmt.Errorf("line %d: has an anchor or an alias of YAML", n.Line)
	}
	from = e.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(e.text[from:])
		from += size
	}
	to = from
	switch {
	case n.Kind == yaml.ScalarNode:
		to, err = e.scalarEnd(n, from)
		return from, to, err
	case len(n.Content) > 0:
		if _, to, err = e.spanOf(n.Content[len(n.Content)-1]); err != nil {
			return from, to, err
		}
	default:
		to++
	}
	if n.Style&yaml.FlowStyle != 0 {
		to, err = e.flowEnd(n, to)
	}
	return from, to, err
}

func (e *editor) scalarEnd(n *yaml.Node, from int) (int, error) {
	rest := e.text[from:]
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0 && rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return from + i + 1, nil
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0 && rest[0] == '\'':
		for i := 1; i < len(rest); i++ {
			if rest[i] != '\'' {
				continue
			}
			if i+1 < len(rest) && rest[i+1] == '\'' {
				i++
				continue
			}
			return from + i + 1, nil
		}
	case strings.HasPrefix(string(rest), n.Value):
		return from + len(n.Value), nil
	}
	return 0, fmt.Errorf("line %d: has a text of several lines, or with a tag", n.Line)
}

// flowEnd returns the offset behind the bracket that closes a list or mapping.
func (e *editor) flowEnd(n *yaml.Node, at int) (int, error) {
	closing := byte(']')
	if n.Kind == yaml.MappingNode {
		closing = '}'
	}
	for ; at < len(e.text); at++ {
		switch c := e.text[at]; {
		case c == closing:
			return at + 1, nil
		case c == '#':
			at = e.lineEnd(at)
		case c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != ',':
			return 0, fmt.Errorf("line %d: has a list that cannot be read", n.Line)
		}
	}
	return 0, fmt.Errorf("line %d: has a list without an end", n.Line)
}
