// Package manifest reads YAML and JSON files into typed objects. It is strict, reports all problems of an object
// together, and names the file, line, object and field of each.
//
// [Split] cuts a file into documents, so that a broken one does not hide the problems of the next. [Document.Parse]
// checks the syntax of one and returns its [Object], and [Object.Decode] fills a Go value from it.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
)

// Document is a document of a file.
type Document struct {
	Place
	// Convert converts YAML to JSON, in place of the strict conversion: it accepts
	// merge keys, for example. Repeated fields are reported all the same.
	Convert func([]byte) ([]byte, error)

	text     []byte
	json     bool  // text is one JSON value
	whole    bool  // the items of a List are not cut out
	broken   error // of JSON
	repeated atomic.Int64
}

var errManyObjects = fmt.Errorf("holds more than %d objects: split it into several files", budget.FileObjects)

// Split returns the documents of a file that are not empty. JSON values may follow each other without a marker.
func Split(file string, data []byte) ([]*Document, error) {
	if isUTF16(data) {
		return nil, errors.New("the text is UTF-16: save it as UTF-8")
	}
	var docs []*Document
	text := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for _, c := range splitChunks(text) {
		if docs = append(docs, c.readDocuments()...); len(docs) > budget.FileObjects {
			return nil, errManyObjects
		}
	}
	for i, d := range docs {
		d.File, d.Document = file, i+1
	}
	return docs, nil
}

// chunk is a part of a text that begins at a line, counted from 1.
type chunk struct {
	text []byte
	line int
}

// splitChunks cuts a file at the lines "---" and "...". YAML allows no other use of
// these lines, and JSON none at all.
func splitChunks(data []byte) []chunk {
	var out []chunk
	start, pos, line, startLine := 0, 0, 0, 1
	directives := false // nothing else so far: "---" still belongs to them

	for pos < len(data) && len(out) <= 2*budget.FileObjects { // with empty ones between them
		line++
		first, end := pos == start, pos+lineLength(data[pos:])
		text := data[pos:end]
		switch {
		case text[0] == '-' && isMarker(text, "---") && !directives:
			out = append(out, chunk{data[start:pos], startLine})
			start, startLine = pos, line
		case text[0] == '.' && isMarker(text, "..."):
			out = append(out, chunk{data[start:pos], startLine})
			start, startLine = end, line+1
		}
		directives = (directives || first) && text[0] == '%' || directives && isEmpty(text)
		pos = end
	}
	return append(out, chunk{data[start:], startLine})
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isEmpty reports whether lines hold nothing but comments.
func isEmpty(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// readDocuments returns one YAML document, or any number of JSON values; none if the chunk is empty.
func (c chunk) readDocuments() (docs []*Document) {
	yaml := &Document{Place: Place{Line: c.line}, text: c.text}
	text := c
	if isMarker(c.text, "---") {
		text.text = c.text[len("---"):]
	}
	if isEmpty(text.text) {
		return nil
	}
	first := bytes.TrimSpace(text.text)[0]
	if first != '{' && first != '[' {
		return []*Document{yaml}
	}
	if json.Valid(text.text) {
		text.line += bytes.Count(text.text[:bytes.IndexByte(text.text, first)], []byte("\n"))
		return []*Document{{Place: Place{Line: text.line}, text: bytes.TrimSpace(text.text), json: true}}
	}
	values, rest := text.values(json.NewDecoder(bytes.NewReader(text.text)))
	for _, v := range values {
		docs = append(docs, &Document{Place: Place{Line: v.line}, text: v.text, json: true})
	}
	if len(bytes.TrimSpace(rest.text)) == 0 || len(docs) > budget.FileObjects {
		return docs
	}
	if tooLarge(c.text, false) == nil {
		if _, err := parseYAML(c.text); err == nil {
			return []*Document{yaml} // in flow style
		}
	}
	line, err := rest.explainJSON()
	return append(docs, &Document{Place: Place{Line: line}, broken: err})
}

// values returns the JSON values of a text from the position of a decoder on, up
// to the end of the list around them or to a mistake, and the rest.
func (c chunk) values(d *json.Decoder) (values []chunk, rest chunk) {
	pos := 0
	advance := func(to int) {
		c.line += bytes.Count(c.text[pos:to], []byte("\n"))
		pos = to
	}
	var value json.RawMessage
	for len(values) <= budget.FileObjects && d.More() && d.Decode(&value) == nil {
		end := int(d.InputOffset())
		advance(end - len(value))
		values = append(values, chunk{text: c.text[pos:end], line: c.line})
		advance(end)
	}
	return values, chunk{text: c.text[pos:], line: c.line}
}

var errLong = fmt.Errorf("is larger than %d MiB: split it into several files", budget.FileSize>>20)

// ReadFile reads a file of objects. What cannot be one is not read to its end: a file that is larger than
// [budget.FileSize], or that holds a NUL. A pipe or a device is an [atomicfile.ErrNotRegular].
func ReadFile(path string) ([]byte, error) {
	f, info, err := atomicfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > budget.FileSize {
		return nil, errLong
	}
	return read(f, info.Size())
}

// Read is like [ReadFile] for a stream.
func Read(r io.Reader) ([]byte, error) { return read(r, 0) }

func read(r io.Reader, size int64) ([]byte, error) {
	data := make([]byte, 0, max(bytes.MinRead, size+1))
	for {
		n, err := r.Read(data[len(data):cap(data)])
		if i := bytes.IndexByte(data[len(data):len(data)+n], 0); i >= 0 && !isUTF16(data[:len(data)+n]) {
			line := 1 + bytes.Count(data[:len(data)+i], []byte("\n"))
			return nil, fmt.Errorf("line %d holds a NUL: the file is no text", line)
		}
		data = data[:len(data)+n]
		switch {
		case len(data) > budget.FileSize:
			return nil, errLong
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

// isUTF16 reports whether a text begins with the mark of UTF-16, which [Split] reports.
func isUTF16(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}

// separators can follow a value in a list or an object of YAML: a comma, or a line end.
var separators = [][]byte{{','}, {'\n'}, {'\r'}, []byte("\u0085"), []byte("\u2028"), []byte("\u2029")}

// tooLarge returns why the text of an object is not parsed; nil: it is. Each value takes some
// hundred bytes of memory when it is parsed, even if it is short in the text.
func tooLarge(text []byte, json bool) error {
	if len(text) > budget.FileObject {
		return fmt.Errorf("the object is larger than %d MiB", budget.FileObject>>20)
	}
	n, after := 0, separators
	if json {
		after = separators[:1]
	} else {
		n -= bytes.Count(text, []byte("\r\n"))
	}
	for _, s := range after {
		n += bytes.Count(text, s)
	}
	if n > budget.FileValues {
		return fmt.Errorf("the object has more than %d lines and commas", budget.FileValues)
	}
	return nil
}

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
// The cut goes by indentation alone. It is right unless a quoted text, a bracket or an alias reaches from one item
// into another; then one of the parts cannot be parsed.
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
