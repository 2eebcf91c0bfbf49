package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// GivenTwice is the problem of repeated fields; the last one counts.
const GivenTwice = "the field is given twice: remove one of them"

// NoMarker is the problem of an object that another one follows without a line "---".
const NoMarker = "the field is given twice: is a line --- missing above it?"

// A few lines of nested aliases can expand to billions of values, where repeatedText bytes
// of a text count as a value.
const repeatedText = 10

// converter converts the YAML of an object to JSON values. Values that JSON does not have are problems.
type converter struct {
	*Object
	path    []string // of the value
	aliases int      // around the value
	more    int      // problems that are counted only
}

func (c *converter) addProblem(n *yaml.Node, field, value, text string) {
	if len(c.problems) >= budget.Findings {
		c.more++
		return
	}
	path := strings.Join(append(slices.Clip(c.path), field), ".")
	path = strings.TrimSuffix(strings.ReplaceAll(path, ".[", "["), ".")
	c.problems = append(c.problems, c.errorAt(n, &FieldError{Field: path, Value: value, Problem: text}))
}

func (c *converter) convertChild(name string, n *yaml.Node) any {
	c.path = append(c.path, name)
	v := c.convertValue(n)
	c.path = c.path[:len(c.path)-1]
	return v
}

func (c *converter) convertValue(n *yaml.Node) any {
	if n.Kind == yaml.AliasNode {
		c.aliases++
		defer func() { c.aliases-- }()
		n = n.Alias
	}
	switch {
	case c.aliases > 0 && c.exceedsAliases(n):
		return nil
	case n.Kind == yaml.MappingNode:
		return c.convertMapping(n)
	case n.Kind == yaml.ScalarNode:
		return c.convertScalar(n)
	}
	list := make([]any, len(n.Content))
	for i, item := range n.Content {
		list[i] = c.convertChild("["+strconv.Itoa(i)+"]", item)
	}
	return list
}

// exceedsAliases counts a value that an alias repeats, and reports whether there are too many.
func (c *converter) exceedsAliases(n *yaml.Node) bool {
	if c.doc.repeated.Add(int64(1+len(n.Value)/repeatedText)) <= budget.AliasedValues && c.aliases <= budget.AliasNesting {
		return false
	}
	if !c.tooMany {
		c.problems = append(c.problems, c.errorAt(n, &FieldError{
			Problem: fmt.Sprintf("the aliases of the document repeat more than %d values: write them out", budget.AliasedValues)}))
	}
	c.tooMany = true
	return true
}

func (c *converter) convertMapping(n *yaml.Node) map[string]any {
	fields := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		_, twice := fields[key.Value]
		switch {
		case key.Kind == yaml.SequenceNode && len(key.Content) == 1 && strings.Count(key.Content[0].Value, ":") > 1:
			c.addProblem(key, "", "", `has a field name that is not plain text: an IPv6 address with a port needs quotes, like "[2001:db8::10]:443"`)
			continue
		case key.Kind != yaml.ScalarNode:
			c.addProblem(key, "", "", "has a field name that is not plain text")
			continue
		case key.ShortTag() == "!!merge":
			if c.doc.Convert != nil {
				continue
			}
			c.addProblem(key, key.Value, "", "merging is not supported: write the fields out")
			continue
		case c.merged && len(c.path) == 0:
			// Only follows from the missing marker.
		case twice && c.doc.Convert == nil && c.aliases == 0 && len(c.path) == 0 && (key.Value == "apiVersion" || key.Value == "kind"):
			c.merged, c.problems = true, nil
			c.addProblem(key, key.Value, "", NoMarker)
		case twice:
			c.addProblem(key, key.Value, "", GivenTwice)
		}
		fields[key.Value] = c.convertChild(key.Value, value)
	}
	return fields
}

func (c *converter) convertScalar(n *yaml.Node) any {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		return c.convertNumber(n)
	case "!!str", "!!timestamp", "!!merge":
		return n.Value
	}
	c.addProblem(n, "", n.Value, "has the tag "+n.Tag+": text belongs here")
	return nil
}

// convertNumber converts a number. Where a whole number belongs, 80.0 and 080 do not stand for 80.
func (c *converter) convertNumber(n *yaml.Node) any {
	if json.Valid([]byte(n.Value)) {
		return json.Number(n.Value)
	}
	var v any
	err := n.Decode(&v)
	f, isFloat := v.(float64)
	switch {
	case err != nil || math.IsInf(f, 0) || math.IsNaN(f):
		return n.Value
	case isFloat:
		return json.Number(strconv.FormatFloat(f, 'e', -1, 64))
	}
	return v
}

// parseYAML returns nil for a document without content. Without a marker there can be only one document.
func parseYAML(text []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var n yaml.Node
	switch err := d.Decode(&n); {
	case err == io.EOF:
		return nil, nil
	case err != nil:
		return nil, err
	}
	switch err := d.Decode(&yaml.Node{}); {
	case err == nil:
		return nil, errors.New("yaml: a second document begins without a line ---")
	case err != io.EOF:
		return nil, err
	}
	return n.Content[0], nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line \d+: )?`)

// explainYAML returns the line of a mistake in a text that begins at line first, and a clear error. The parser's
// own line belongs to the block around the mistake, or is the one before; the first line without which the mistake
// is not there is the one to look at.
func explainYAML(text []byte, first int, err error) (int, error) {
	problem := yamlLine.ReplaceAllString(err.Error(), "")
	lines := bytes.SplitAfter(text, []byte("\n"))
	n := 0
	if _, err := fmt.Sscanf(err.Error(), "yaml: line %d:", &n); err == nil {
		n--
	}
	if len(text) <= budget.ExplainedText {
		n = sort.Search(len(lines), func(i int) bool {
			_, err := parseYAML(bytes.Join(lines[:i+1], nil))
			return err != nil && yamlLine.ReplaceAllString(err.Error(), "") == problem
		})
	}
	n = max(0, min(n, len(lines)-1))
	return first + n, errors.New("broken YAML: " + yamlHint(problem, lines[n]))
}

// hints are the most common causes of the parser's messages; the first match counts.
var hints = []struct{ words, hint string }{
	{"did not find expected ',' or", "a bracket that opens here is never closed, or a ',' is missing"},
	{"unexpected end of stream", "a quote or bracket that opens here is never closed"},
	{"mapping values are not allowed", `%s: check the indentation, write a space after each ':', and put a value that holds ": " in quotes`},
	{"expected", "%s: check the indentation of this line and of the one before"},
	{"cannot start any token", "%s: put the value in quotes"},
}

// bracketed matches an address such as [2001:db8::10]:443 outside of quotes.
var bracketed = regexp.MustCompile(`(^|[^"'])\[[0-9a-fA-F]*:[0-9a-fA-F:.]*\]:[0-9]`)

func yamlHint(problem string, line []byte) string {
	indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	switch {
	case bytes.IndexByte(indent, '\t') >= 0:
		return "a tab in the indentation: use spaces"
	case bracketed.Match(line):
		return `an IPv6 address with a port needs quotes: write it like "[2001:db8::10]:443"`
	case bytes.HasPrefix(line, []byte("<<<<<<<")), bytes.HasPrefix(line, []byte("=======")), bytes.HasPrefix(line, []byte(">>>>>>>")):
		return "a merge conflict: resolve it, and remove its marks"
	}
	for _, h := range hints {
		if strings.Contains(problem, h.words) {
			return strings.Replace(h.hint, "%s", problem, 1)
		}
	}
	return problem
}

// explainJSON returns the line of the first mistake in a text, and a clear error.
func (c chunk) explainJSON() (int, error) {
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(c.text, new(json.RawMessage)), &syntax) {
		return c.line, errors.New("broken JSON")
	}
	problem, text := syntax.Error(), c.text
	switch {
	case strings.Contains(problem, "unexpected end"):
		problem = "the text ends inside an object or list: a bracket or quote is missing"
		text = bytes.TrimRight(text, " \t\r\n")
	case strings.Contains(problem, "after object key:value pair"), strings.Contains(problem, "after array element"):
		problem += ": a ',' or a closing bracket is missing in front of it"
	}
	at := min(int(syntax.Offset), len(text))
	return c.line + bytes.Count(text[:at], []byte("\n")), errors.New("broken JSON: " + problem)
}
