// Package manifest reads YAML and JSON files into typed objects. It is strict,
// reports all problems of an object together, and names the file, line, object
// and field of each.
//
// [Split] cuts a file into documents, so that a broken one does not hide the
// problems of the next. [Document.Parse] checks the syntax of one and returns its
// [Object], and [Object.Decode] fills a Go value from it.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

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

// Split returns the documents of a file that are not empty. JSON values may
// follow each other without a marker.
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
	directives := false                                       // nothing but directives so far: "---" still belongs to them
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

// readDocuments returns one YAML document, or any number of JSON values; none if the
// chunk is empty.
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

// ReadFile reads a file of objects. What cannot be one is not read to its end: a file that is
// larger than [budget.FileSize], or that holds a NUL. A pipe or a device is an
// [atomicfile.ErrNotRegular].
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
