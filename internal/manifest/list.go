package manifest

import (
	"bytes"
	"encoding/json"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// Whole returns a copy of the document whose Lists are parsed as a whole.
func (d *Document) Whole() *Document {
	return &Document{Place: d.Place, Convert: d.Convert, text: d.text, json: d.json, whole: true}
}

// IsCut reports whether the items of a YAML List have not been parsed yet.
func (o *Object) IsCut() bool { return o.chunks != nil && !o.doc.json }

// cutJSON takes the items out of a List. Line ends stay in their place.
func (o *Object) cutJSON() {
	d := o.jsonField("items")
	if d == nil {
		return
	}
	if t, _ := d.Token(); t != json.Delim('[') {
		return
	}
	start := int(d.InputOffset())
	items, rest := chunk{text: o.text, line: o.Line}.values(d)
	if len(items) > 0 {
		o.text, o.chunks = replaceKeepingLines(o.text, start, len(o.text)-len(rest.text), ""), items
	}
}

// cutYAML returns a List in block style, as kubectl prints it, without its items;
// nil: the document must be parsed as a whole.
//
// The cut goes by indentation alone. It is right unless a quoted text, a bracket
// or an alias reaches from one item into another; then one of the parts cannot be
// parsed.
func (d *Document) cutYAML() *Object {
	const field = "items:"
	if d.whole || hasOtherBreaks(d.text) {
		return nil
	}
	before, start, line := 0, 0, 1
	for text := range bytes.Lines(d.text) {
		before, start = start+len(field), start+len(text)
		if string(bytes.TrimRight(text, " \r\n")) == field {
			break
		}
		line++
	}
	items, end := chunk{d.text[start:], d.Line + line}.splitEntries()
	switch {
	case len(items) == 0:
		return nil
	case len(items) > budget.FileObjects:
		return &Object{Place: d.Place, doc: d, chunks: items}
	case tooLarge(d.text[:before], false) != nil || tooLarge(d.text[start+end:], false) != nil:
		return nil
	}
	root, err := parseYAML(replaceKeepingLines(d.text, before, start+end, " []"))
	if err != nil || root == nil || root.Style&yaml.FlowStyle != 0 {
		return nil
	}
	i := index(root, "items")
	if i < 0 || root.Content[i].Line != line { // that line is inside a quoted text
		return nil
	}
	o := d.newObject(root, d.Line-1, 0)
	o.chunks = items
	return o
}

// hasOtherBreaks reports whether YAML ends lines where [bytes.Lines] does not.
func hasOtherBreaks(text []byte) bool {
	return bytes.Count(text, []byte("\r")) > bytes.Count(text, []byte("\r\n")) ||
		slices.ContainsFunc(separators[3:], func(b []byte) bool { return bytes.Contains(text, b) })
}

// replaceKeepingLines replaces a part of a text, except for its line ends.
func replaceKeepingLines(text []byte, start, end int, replacement string) []byte {
	lines := bytes.Count(text[start:end], []byte("\n"))
	return slices.Concat(text[:start], []byte(replacement), bytes.Repeat([]byte("\n"), lines), text[end:])
}

// splitEntries returns the entries of a block sequence, the first one with the comments in front
// of it, and where it ends.
func (c chunk) splitEntries() (items []chunk, end int) {
	indent, start, pos, first := -1, 0, 0, c.line
	for ; pos < len(c.text) && len(items) <= budget.FileObjects; c.line++ {
		text := c.text[pos : pos+lineLength(c.text[pos:])]
		content := bytes.TrimLeft(text, " ")
		spaces := len(text) - len(content)
		if len(items) > 0 && spaces > indent { // nearly all lines
			pos += len(text)
			continue
		}
		if content = bytes.Trim(content, " \t\r\n"); len(content) > 0 && content[0] != '#' {
			if indent < 0 {
				indent = spaces
			}
			isEntry := spaces == indent && content[0] == '-' && (len(content) == 1 || content[1] == ' ')
			if !isEntry && (spaces <= indent || len(items) == 0) {
				break
			}
			switch {
			case isEntry && len(items) == 0:
				items = append(items, chunk{line: first})
			case isEntry:
				items[len(items)-1].text = c.text[start:pos]
				items, start = append(items, chunk{line: c.line}), pos
			}
		}
		pos += len(text)
	}
	if len(items) > 0 {
		items[len(items)-1].text = c.text[start:pos]
	}
	return items, pos
}

func lineLength(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}
