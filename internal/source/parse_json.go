package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseJSON reads all JSON documents of a chunk into the same trees as
// parseYAML, in a fraction of the time.
func parseJSON(c chunk) ([]document, *syntaxError) {
	text := c.text
	if isMarker(text, "---") {
		text = text[len("---"):]
	}
	if json.Valid(text) { // one document, as nearly always: no need for copies
		j := jsonTree{text: text, line: 1}
		return []document{{j.value(), c.line - 1}}, nil
	}
	var docs []document
	for r := json.NewDecoder(bytes.NewReader(text)); ; {
		start := int(r.InputOffset())
		var value json.RawMessage
		err := r.Decode(&value)
		line := c.line + countLines(text[:start])
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return docs, explainJSON(text[start:], line)
		}
		j := jsonTree{text: text[start:r.InputOffset()], line: 1}
		docs = append(docs, document{j.value(), line - 1})
	}
}

// explainJSON says what is wrong with a text whose first line is line.
func explainJSON(text []byte, line int) *syntaxError {
	err := json.Unmarshal(text, new(json.RawMessage))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return &syntaxError{line, "broken JSON"}
	}
	problem := syntax.Error()
	switch {
	case strings.Contains(problem, "unexpected end"):
		problem = "the text ends inside an object or list: a bracket or quote is missing"
		text = bytes.TrimRight(text, " \t\r\n")
	case strings.Contains(problem, "after object key:value pair"), strings.Contains(problem, "after array element"):
		problem += ": a ',' or a closing bracket is missing in front of it"
	}
	at := min(int(syntax.Offset), len(text))
	return &syntaxError{line + countLines(text[:at]), "broken JSON: " + problem}
}

// jsonTree builds the tree of a value. The text is known to be valid JSON.
type jsonTree struct {
	text []byte
	pos  int
	line int // of pos
}

func (j *jsonTree) value() *yaml.Node {
	j.skipSpace()
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: j.line}
	switch j.text[j.pos] {
	case '{':
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		j.children(n)
	case '[':
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		j.children(n)
	case '"':
		n.Tag, n.Style, n.Value = "!!str", yaml.DoubleQuotedStyle, j.string()
	default:
		n.Value = j.literal()
		n.Tag = literalTag(n.Value)
	}
	return n
}

func (j *jsonTree) skipSpace() {
	for j.pos < len(j.text) {
		switch j.text[j.pos] {
		case '\n':
			j.line++
		case ' ', '\t', '\r':
		default:
			return
		}
		j.pos++
	}
}

func (j *jsonTree) children(n *yaml.Node) {
	for j.pos++; ; {
		j.skipSpace()
		switch j.text[j.pos] {
		case '}', ']':
			j.pos++
			return
		case ',', ':':
			j.pos++
		default:
			n.Content = append(n.Content, j.value())
		}
	}
}

func (j *jsonTree) string() string {
	start, plain := j.pos, true
	for j.pos++; j.text[j.pos] != '"'; j.pos++ {
		if c := j.text[j.pos]; c == '\\' {
			plain = false
			j.pos++
		} else if c >= utf8.RuneSelf {
			plain = false
		}
	}
	j.pos++
	quoted := j.text[start:j.pos]
	if plain {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // valid, as all of the text
	return s
}

func (j *jsonTree) literal() string {
	rest := j.text[j.pos:]
	end := bytes.IndexAny(rest, ",]} \t\r\n")
	if end < 0 {
		end = len(rest)
	}
	j.pos += end
	return string(rest[:end])
}

func literalTag(s string) string {
	switch {
	case s == "null":
		return "!!null"
	case s == "true", s == "false":
		return "!!bool"
	case strings.ContainsAny(s, ".eE"):
		return "!!float"
	}
	return "!!int"
}
