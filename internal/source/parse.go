package source

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// syntaxError is YAML or JSON that cannot be read.
type syntaxError struct {
	line    int // in the file
	problem string
}

func (e *syntaxError) Error() string { return e.problem }

// document is one YAML or JSON document as a tree. The lines of its nodes
// count from the document's own first line; base is what the file has before.
type document struct {
	root *yaml.Node
	base int
}

// parse reads a chunk: one YAML document, or any number of JSON documents in a
// row. It returns what precedes an error, too.
func parse(c chunk) ([]document, *syntaxError) {
	var broken *syntaxError
	if text := afterMarker(c.text); len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		var docs []document
		docs, broken = parseJSON(c)
		if broken == nil {
			return docs, nil
		}
		if root, err := parseYAML(c.text); err == nil && root != nil {
			return []document{{root, c.line - 1}}, nil // flow style
		}
		return docs, broken
	}
	root, err := parseYAML(c.text)
	if err != nil {
		return nil, explainYAML(c, err)
	}
	if root == nil {
		return nil, nil
	}
	return []document{{root, c.line - 1}}, nil
}

// afterMarker returns the text behind a leading "---" and white space.
func afterMarker(text []byte) []byte {
	if isMarker(text, "---") {
		text = text[len("---"):]
	}
	return bytes.TrimSpace(text)
}

// parseYAML returns nil for a document without content.
func parseYAML(text []byte) (*yaml.Node, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, err
	}
	if n.Kind != yaml.DocumentNode || len(n.Content) == 0 || isNull(n.Content[0]) {
		return nil, nil
	}
	return n.Content[0], nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

var yamlLine = regexp.MustCompile(`^yaml: (?:line \d+: )?`)

// maxExplained limits the search for the line of a mistake, which parses the
// text about 20 times.
const maxExplained = 1 << 20

// explainYAML says what is wrong where. The parser's own line is that of the
// block around the mistake, or the one before; the first line without which
// the mistake is not there is what people look for.
func explainYAML(c chunk, err error) *syntaxError {
	problem := yamlLine.ReplaceAllString(err.Error(), "")
	lines := bytes.SplitAfter(c.text, []byte("\n"))
	n := 0
	if _, err := fmt.Sscanf(err.Error(), "yaml: line %d:", &n); err == nil {
		n--
	}
	if len(c.text) <= maxExplained {
		n = sort.Search(len(lines), func(i int) bool {
			_, err := parseYAML(bytes.Join(lines[:i+1], nil))
			return err != nil && yamlLine.ReplaceAllString(err.Error(), "") == problem
		})
	}
	n = max(0, min(n, len(lines)-1))
	before := lines[max(0, n-1)]
	return &syntaxError{c.line + n, "broken YAML: " + hint(problem, before, lines[n])}
}

// noSpace finds a field such as "name:web".
var noSpace = regexp.MustCompile(`^[- ]*\w+:[\w"']`)

// hint adds to the parser's words what most often causes them.
func hint(problem string, before, line []byte) string {
	indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	has := func(s string) bool { return strings.Contains(problem, s) }
	switch {
	case bytes.IndexByte(indent, '\t') >= 0:
		return "a tab in the indentation: use spaces"
	case has("mapping values are not allowed") && noSpace.Match(before),
		has("could not find expected ':'") && noSpace.Match(before):
		return "the line before has no space after its ':': put one there"
	case has("mapping values are not allowed"):
		return problem + `: check the indentation, and put a value that holds ": " in quotes`
	case has("did not find expected ',' or"):
		return "a bracket that opens here is never closed, or a ',' is missing"
	case has("did not find expected"), has("could not find expected ':'"):
		return problem + ": check the indentation of this line and of the one before"
	case has("unexpected end of stream"):
		return "a quote or bracket that opens here is never closed"
	case has("cannot start any token"):
		return problem + ": put the value in quotes"
	case has("incompatible YAML document"):
		return "the %YAML line asks for an unknown version: leave it out"
	case has("unknown anchor"):
		return problem + ": define it with '&' earlier in the same document"
	}
	return problem
}

var (
	utf8BOM  = []byte("\xef\xbb\xbf")
	utf16BOM = [][]byte{[]byte("\xff\xfe"), []byte("\xfe\xff")}
)

var errUTF16 = errors.New("the text is UTF-16: save it as UTF-8")

// trimBOM removes the byte order mark that some editors write.
func trimBOM(data []byte) ([]byte, error) {
	if slices.ContainsFunc(utf16BOM, func(bom []byte) bool { return bytes.HasPrefix(data, bom) }) {
		return nil, errUTF16
	}
	return bytes.TrimPrefix(data, utf8BOM), nil
}

// lineOf returns the line of the field at path, or of the closest field around
// it that exists.
func lineOf(n *yaml.Node, path string) int {
	line := n.Line
	for _, step := range steps(path) {
		n = unalias(n)
		next := n
		switch {
		case n.Kind == yaml.SequenceNode:
			var i int
			if _, err := fmt.Sscanf(step, "%d", &i); err != nil || i >= len(n.Content) {
				return line
			}
			next = n.Content[i]
			line = next.Line
		default:
			key, value := lookup(n, step)
			if value == nil {
				return line
			}
			next, line = value, key.Line
		}
		n = next
	}
	return line
}

// steps splits a path: a.b[0].c[some.key] is a, b, 0, c, some.key.
func steps(path string) []string {
	var out []string
	for path != "" {
		if path[0] == '[' {
			key, rest, _ := strings.Cut(path[1:], "]")
			out, path = append(out, key), rest
			continue
		}
		path = strings.TrimPrefix(path, ".")
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		out, path = append(out, path[:end]), path[end:]
	}
	return out
}

// lookup returns the key and the value of a mapping's field, nil where there
// is none.
func lookup(n *yaml.Node, field string) (key, value *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

func unalias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}
