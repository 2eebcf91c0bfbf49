package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// parseYAML returns nil for a document without content. Without a marker there
// can be only one document.
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

// explainYAML returns the line of a mistake in a text that begins at line first,
// and a clear error. The parser's own line belongs to the block around the
// mistake, or is the one before; the first line without which the mistake is not
// there is the one to look at.
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

// hints are the most common causes of the parser's messages; the first match
// counts.
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
