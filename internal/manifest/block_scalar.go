package manifest

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scalar reads the value of a field, or an entry, of an object or list in a column, and goes to
// the line after it. A line that is more indented would go on with the value.
func (r *blockReader) scalar(i, column int) bool {
	n := &r.nodes[i]
	rest := r.text[r.start:r.end]
	ok := false
	switch c := rest[0]; c {
	case '\'', '"':
		ok = r.quoted(n, rest)
	case '|':
		ok = r.literal(n, rest, column)
	case '{', '[':
		n.kind = blockObject
		if c == '[' {
			n.kind = blockList
		}
		ok = len(rest) > 1 && rest[1] == c+2 && isRest(rest[2:]) // empty
	default:
		ok = r.plain(n, rest)
	}
	r.advance()
	return ok && r.indent <= column
}

// plain reads text without quotes.
func (r *blockReader) plain(n *blockNode, rest []byte) bool {
	if j := bytes.Index(rest, []byte(" #")); j >= 0 {
		rest = rest[:j]
	}
	rest = bytes.TrimRight(rest, " ")
	if !plainFirst[rest[0]] || rest[0] == '-' && (len(rest) == 1 || !plainFirst[rest[1]]) {
		return false
	}
	if rest[len(rest)-1] == ':' || bytes.Contains(rest, []byte(": ")) {
		return false
	}
	n.kind, n.text = blockPlain, span{int32(r.start), int32(r.start + len(rest))}
	return true
}

// plainFirst are the characters with which text without quotes begins.
var plainFirst = charsOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+~$(")

// quoted reads text in quotes that ends in its line.
func (r *blockReader) quoted(n *blockNode, rest []byte) bool {
	quote, j := rest[0], 1
	for ; j < len(rest); j++ {
		if c := rest[j]; c == '\\' && quote == '"' {
			if j++; j == len(rest) || escaped(rest[j]) == 0 {
				return false
			}
		} else if c == quote {
			if quote == '"' || j+1 == len(rest) || rest[j+1] != quote {
				break
			}
			j++
		}
	}
	if j >= len(rest) || !isRest(rest[j+1:]) {
		return false
	}
	if n.kind = blockSingle; quote == '"' {
		n.kind = blockDouble
	}
	n.text = span{int32(r.start + 1), int32(r.start + j)}
	return true
}

// escaped returns the character for which one after a backslash stands; zero: it is for the
// YAML parser.
func escaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	}
	return 0
}

// literal reads the lines after "|" or "|-".
func (r *blockReader) literal(n *blockNode, rest []byte, column int) bool {
	if n.kind = blockLiteral; len(rest) > 1 && rest[1] == '-' {
		n.kind, rest = blockStrip, rest[1:]
	}
	if len(bytes.TrimRight(rest, " ")) > 1 {
		return false
	}
	n.text = span{int32(r.pos), int32(r.pos)}
	for r.pos < len(r.text) {
		end := bytes.IndexByte(r.text[r.pos:], '\n')
		if end < 0 {
			return false
		}
		content := bytes.TrimLeft(r.text[r.pos:r.pos+end], " ")
		spaces := end - len(content)
		if n.indent == 0 { // the first line
			if spaces <= column || spaces > blockIndentMax || len(content) == 0 {
				return false
			}
			n.indent = int16(spaces)
		}
		switch {
		case len(content) == 0 && spaces > 0:
			return false
		case len(content) > 0 && spaces < int(n.indent):
			return content[0] != '#'
		}
		r.pos, r.line = r.pos+end+1, r.line+1
		if len(content) > 0 {
			n.text.to = int32(r.pos)
		}
	}
	return n.indent > 0
}

// blockIndentMax is the most spaces in front of a line of a literal.
const blockIndentMax = 1000

// plainKind is what a text without quotes stands for.
type plainKind uint8

const (
	plainText plainKind = iota
	plainNull
	plainTrue
	plainFalse
	plainInteger // as JSON writes it
	plainOther   // another number
)

// plainKindOf decides as YAML does.
func plainKindOf(text []byte) plainKind {
	switch c := text[0]; {
	case c >= '0' && c <= '9':
		if isInteger(text) {
			return plainInteger
		}
		if isNoNumber(text) {
			return plainText
		}
	case strings.IndexByte("+-.~nNtTfF", c) < 0, len(text) > len("false") && c >= 'A' && c <= 'z':
		return plainText
	}
	n := yaml.Node{Kind: yaml.ScalarNode, Value: string(text)}
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return plainText
	case "!!null":
		return plainNull
	case "!!bool":
		if strings.EqualFold(n.Value, "true") {
			return plainTrue
		}
		return plainFalse
	}
	return plainOther
}

// isNoNumber reports whether a text that begins with a digit has more points or signs than any
// number: it is an address or a UID, for example. A time may have three signs.
func isNoNumber(text []byte) bool {
	points, signs := 0, 0
	for _, c := range text {
		switch c {
		case '.':
			points++
		case '-', '+':
			signs++
		}
	}
	return points > 1 && signs == 0 || signs > 3
}

// isInteger reports whether a text is a short whole number without a sign.
func isInteger(text []byte) bool {
	if len(text) > 10 || len(text) > 1 && text[0] == '0' {
		return false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// scalarText returns a scalar that is text; false: it is none.
func (b *block) scalarText(n *blockNode) (string, bool) {
	text := b.of(n.text)
	switch n.kind {
	case blockPlain:
		return string(text), plainKindOf(text) == plainText
	case blockSingle:
		return strings.ReplaceAll(string(text), "''", "'"), true
	case blockDouble:
		return unescape(text), true
	case blockLiteral, blockStrip:
		return unindent(text, int(n.indent), n.kind == blockStrip), true
	}
	return "", false
}

func unescape(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' {
			i++
			c = escaped(text[i])
		}
		out = append(out, c)
	}
	return string(out)
}

// unindent returns the lines of a literal.
func unindent(text []byte, indent int, strip bool) string {
	out := make([]byte, 0, len(text))
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			line = line[indent:]
		}
		out = append(out, line...)
	}
	if strip {
		out = bytes.TrimSuffix(out, []byte("\n"))
	}
	return string(out)
}
