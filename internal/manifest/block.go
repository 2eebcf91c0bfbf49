package manifest

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// block is an object in the block style that kubectl and most authors write. It is read
// without the YAML parser, which takes many times as long, and has no errors: [readBlock]
// gives up at all that is unusual or wrong, and the YAML parser decides.
type block struct {
	text  []byte
	entry bool        // text is the one entry of a list
	nodes []blockNode // in the order of the text; the first one is the object itself
	// In the file, gap lines that text lacks are at the offset gapAt.
	gapAt, gap int
	// found is the entry that was asked for last: lists are walked in their order.
	found foundEntry
}

// foundEntry is entry at of a list.
type foundEntry struct{ list, at, node int }

// blockNode is a value: a field of an object, or an entry of a list. The values inside
// follow it.
type blockNode struct {
	key  span // of a field
	text span // of a scalar, as it is written between its quotes
	line int32
	next int32 // the first node that is not inside
	// indent is the number of spaces in front of each line of a literal.
	indent int16
	kind   blockKind
}

type blockKind uint8

const (
	blockNull blockKind = iota
	blockObject
	blockList
	blockPlain   // without quotes: text, a number, a truth value or null
	blockSingle  // in single quotes
	blockDouble  // in double quotes
	blockLiteral // after |
	blockStrip   // after |-
)

// span is a part of a text.
type span struct{ from, to int32 }

func (b *block) of(s span) []byte { return b.text[s.from:s.to] }

const (
	blockDepth  = 64  // of objects and lists
	blockKeyMax = 512 // bytes of the name of a field; YAML has 1024
)

// blockReader reads a block line by line.
type blockReader struct {
	block
	pos  int   // where the next line begins
	line int32 // the number of the current line, from 1
	// The content of the current line is text[start:end], and indent its column; -1:
	// there are no more lines.
	indent, start, end int
	depth              int
}

// readBlock reads the object of a document, or of the text of one entry of a list; nil: it is
// for the YAML parser.
func readBlock(text []byte, entry bool) *block {
	if !isBlockText(text) {
		return nil
	}
	r := &blockReader{block: block{text: text, entry: entry, nodes: newNodes(text)}}
	if isMarker(text, "---") && !r.skipMarker() {
		return nil
	}
	if r.advance(); r.indent < 0 || entry && !r.enter() {
		return nil
	}
	r.nodes[0] = blockNode{line: r.line, kind: blockObject}
	if !r.object(r.indent) || r.indent >= 0 {
		return nil
	}
	r.nodes[0].next = int32(len(r.nodes))
	return &r.block
}

// spareNodes are the nodes of blocks that are no longer used.
var spareNodes = sync.Pool{New: func() any { return new([]blockNode) }}

// newNodes returns one node, and room for the others of a text.
func newNodes(text []byte) []blockNode {
	spare := spareNodes.Get().(*[]blockNode)
	lines := bytes.Count(text, []byte("\n"))
	if n := lines + lines/4 + 8; cap(*spare) < n {
		return make([]blockNode, 1, n)
	}
	return append((*spare)[:0], blockNode{})
}

// release gives the nodes to the next block that is read.
func (b *block) release() {
	const most = 1000 // an object of many lines must not keep memory for the small ones
	if nodes := b.nodes; cap(nodes) <= most {
		spareNodes.Put(&nodes)
	}
	b.nodes = nil
}

// isBlockText reports whether a text has no characters but those that mean the same in every
// part of YAML: no tabs, no line ends of other kinds, no control characters.
func isBlockText(text []byte) bool {
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			if c < ' ' && c != '\n' || c == 0x7f {
				return false
			}
			i++
			continue
		}
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError || c <= '\u00a0' || c > '\ud7ff' || c == '\u2028' || c == '\u2029' {
			return false
		}
		i += size
	}
	return true
}

// skipMarker skips the line "---", if it has nothing but a comment.
func (r *blockReader) skipMarker() bool {
	r.pos = len(r.text)
	if i := bytes.IndexByte(r.text, '\n'); i >= 0 {
		r.pos = i + 1
	}
	r.line = 1
	return isRest(r.text[len("---"):r.pos])
}

// isRest reports whether the rest of a line has nothing but a comment.
func isRest(text []byte) bool {
	content := bytes.TrimLeft(text, " ")
	return len(content) == 0 || content[0] == '\n' || content[0] == '#' && len(content) < len(text)
}

// advance goes to the next line that has more than a comment.
func (r *blockReader) advance() {
	for r.pos < len(r.text) {
		from := r.pos
		end := len(r.text)
		if i := bytes.IndexByte(r.text[from:], '\n'); i >= 0 {
			end = from + i
		}
		r.pos = end + 1
		r.line++
		r.start = from
		for r.start < end && r.text[r.start] == ' ' {
			r.start++
		}
		if r.start < end && r.text[r.start] != '#' {
			r.indent, r.end = r.start-from, end
			return
		}
	}
	r.indent = -1
}

// isEntry reports whether the current line begins with an entry of a list.
func (r *blockReader) isEntry() bool {
	return r.text[r.start] == '-' && (r.start+1 == r.end || r.text[r.start+1] == ' ')
}

// enter goes to the content of the entry at the current place; false: it has none in this line.
func (r *blockReader) enter() bool {
	if !r.isEntry() {
		return false
	}
	from := r.start
	r.skip(1)
	r.indent += r.start - from
	return r.start < r.end && r.text[r.start] != '#' && !r.isEntry()
}

// skip goes past n characters and the spaces after them.
func (r *blockReader) skip(n int) {
	for r.start += n; r.start < r.end && r.text[r.start] == ' '; {
		r.start++
	}
}

// object reads the fields in a column. Like the other methods, it returns false to give up.
func (r *blockReader) object(column int) bool {
	if r.depth++; r.depth > blockDepth {
		return false
	}
	for r.indent == column {
		key, ok := r.key()
		if !ok {
			return false
		}
		i := len(r.nodes)
		r.nodes = append(r.nodes, blockNode{key: key, line: r.line})
		r.skip(int(key.to-key.from) + 1)
		if !r.field(i, column) {
			return false
		}
		r.nodes[i].next = int32(len(r.nodes))
	}
	r.depth--
	return r.indent < column
}

// key returns the name of the field at the current place, which needs no quotes.
func (r *blockReader) key() (span, bool) {
	if !keyFirst[r.text[r.start]] {
		return span{}, false
	}
	for i := r.start; i < r.end && i-r.start <= blockKeyMax; i++ {
		switch c := r.text[i]; {
		case c <= ' ' || c >= utf8.RuneSelf:
			return span{}, false
		case c == ':' && (i+1 == r.end || r.text[i+1] == ' '):
			return span{int32(r.start), int32(i)}, true
		}
	}
	return span{}, false
}

// keyFirst are the characters with which names begin.
var keyFirst = charsOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./")

func charsOf(text string) (set [256]bool) {
	for _, c := range []byte(text) {
		set[c] = true
	}
	return set
}

// field reads the value of a field of an object in a column.
func (r *blockReader) field(i, column int) bool {
	if r.start < r.end && r.text[r.start] != '#' {
		return r.scalar(i, column)
	}
	r.advance()
	switch {
	case r.indent < column, r.indent == column && !r.isEntry():
		return true // null
	case r.isEntry():
		r.nodes[i].kind = blockList
		return r.list(r.indent)
	}
	r.nodes[i].kind = blockObject
	return r.object(r.indent)
}

// list reads the entries in a column.
func (r *blockReader) list(column int) bool {
	if r.depth++; r.depth > blockDepth {
		return false
	}
	for r.indent == column && r.isEntry() {
		if !r.enter() {
			return false
		}
		i := len(r.nodes)
		r.nodes = append(r.nodes, blockNode{line: r.line})
		if _, isObject := r.key(); isObject {
			r.nodes[i].kind = blockObject
			if !r.object(r.indent) {
				return false
			}
		} else if !r.scalar(i, column) {
			return false
		}
		r.nodes[i].next = int32(len(r.nodes))
	}
	r.depth--
	return r.indent <= column
}

// single returns the value of a field that has a single one.
func (b *block) single(name string) string {
	n := &b.nodes[0]
	for j := 1; j < int(n.next); j = int(b.nodes[j].next) {
		f := &b.nodes[j]
		if string(b.of(f.key)) != name {
			continue
		}
		if text, isText := b.scalarText(f); isText {
			return text
		}
		if b.isNull(j) {
			return ""
		}
		return string(b.of(f.text)) // of a number, for example
	}
	return ""
}

// lineOf returns the line of a field, as [Object.locate] finds it.
func (b *block) lineOf(path string) int {
	i := 0
	for path != "" {
		path = strings.TrimLeft(path, ".[]")
		j, rest := b.entryOf(i, path)
		if j < 0 {
			j, rest = b.fieldOf(i, path)
		}
		if j < 0 {
			break
		}
		i, path = j, rest
	}
	return int(b.nodes[i].line)
}

// entryOf returns the entry of a list with which a path begins, and the rest of the path; -1:
// there is none.
func (b *block) entryOf(i int, path string) (int, string) {
	n := &b.nodes[i]
	if n.kind != blockList {
		return -1, ""
	}
	number, rest, _ := strings.Cut(path, "]")
	at, err := strconv.Atoi(number)
	if err != nil || at < 0 {
		return -1, ""
	}
	from := foundEntry{i, 0, i + 1}
	if b.found.list == i && b.found.at <= at && b.found.node > i {
		from = b.found
	}
	for j := from.node; j < int(n.next); j = int(b.nodes[j].next) {
		if from.at == at {
			b.found = foundEntry{i, at, j}
			return j, rest
		}
		from.at++
	}
	return -1, ""
}

// fieldOf is like entryOf for an object. Of fields that are given twice it is the last one.
func (b *block) fieldOf(i int, path string) (found int, rest string) {
	found, rest = -1, path
	if b.nodes[i].kind != blockObject {
		return found, rest
	}
	for j := i + 1; j < int(b.nodes[i].next); j = int(b.nodes[j].next) {
		after, ok := strings.CutPrefix(path, string(b.of(b.nodes[j].key)))
		if ok && (after == "" || strings.Contains(".[]", after[:1])) && len(after) <= len(rest) {
			found, rest = j, after
		}
	}
	return found, rest
}

// cut notes that lines are missing at an offset of the text, after a line.
func (b *block) cut(offset, line, lines int) {
	b.gapAt, b.gap = offset, lines
	for i := range b.nodes {
		if int(b.nodes[i].line) > line {
			b.nodes[i].line += int32(lines)
		}
	}
}

// tree returns the block as the YAML parser reads it; nil: it does not.
func (b *block) tree() *yaml.Node {
	text := slices.Concat(b.text[:b.gapAt], bytes.Repeat([]byte("\n"), b.gap), b.text[b.gapAt:])
	root, err := parseYAML(text)
	if err != nil || root == nil {
		return nil
	}
	if b.entry {
		return root.Content[0]
	}
	return root
}
