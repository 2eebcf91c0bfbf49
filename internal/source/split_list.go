package source

import (
	"bytes"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// splitItems cuts a YAML List in block style, as kubectl prints it, into its
// items and the list without them. Read one by one, thousands of items take a
// fraction of the memory and all processors. ok is false for everything else.
//
// The cut goes by indentation alone. It is right unless a quoted text over
// several lines, or an alias, reaches from one item into another; then one of
// the parts cannot be parsed, and the caller must read the list as a whole.
func splitItems(c chunk) (head []byte, items []chunk, ok bool) {
	before, pos := itemsField(c.text)
	line, indent := c.line+countLines(c.text[:pos]), -1
	var starts []int
scan:
	for end := pos; pos < len(c.text); pos, line = end, line+1 {
		end = lineEnd(c.text, pos)
		content := bytes.TrimLeft(c.text[pos:end], " ")
		spaces := end - pos - len(content)
		if content = bytes.TrimSpace(content); len(content) == 0 || content[0] == '#' {
			continue // of the item before
		}
		if indent < 0 {
			indent = spaces
		}
		switch {
		case spaces == indent && isEntry(content):
			items = append(items, chunk{line: line})
			starts = append(starts, pos)
		case len(items) == 0 || spaces <= indent:
			break scan
		}
	}
	starts = append(starts, pos)
	for i := range items {
		items[i].text = c.text[starts[i]:starts[i+1]]
	}
	return bytes.Join([][]byte{before, []byte("items: []\n"), c.text[pos:]}, nil), items, len(items) > 0
}

// itemsField finds the field "items" of a document. It returns what is before
// and the offset of what follows, or the length of the text.
func itemsField(text []byte) (before []byte, after int) {
	for pos := 0; pos < len(text); {
		end := lineEnd(text, pos)
		if string(bytes.TrimRight(text[pos:end], " \r\n")) == "items:" {
			return text[:pos], end
		}
		pos = end
	}
	return nil, len(text)
}

func isEntry(content []byte) bool {
	return content[0] == '-' && (len(content) == 1 || content[1] == ' ')
}

// list is a List that is read item by item.
type list struct {
	whole    chunk
	defaults metav1.TypeMeta // of the items
}

// splitList returns a job for each item of a List, or none where the chunk must
// be read as a whole.
func (r *objectReader) splitList(c chunk) []job {
	head, items, ok := splitItems(c)
	if !ok {
		return nil
	}
	n, err := parseYAML(head)
	if err != nil || n == nil {
		return nil
	}
	meta, problem := header(n, metav1.TypeMeta{})
	itemKind, isList := listed(meta)
	d := &decoder{types: r.types}
	if problem != nil || !isList || len(r.listItself(d, n, place{}, meta)) > 0 {
		return nil
	}
	of := &list{whole: c, defaults: itemDefaults(meta, itemKind)}
	jobs := make([]job, len(items))
	for i, item := range items {
		jobs[i] = job{chunk: item, list: of, item: i + 1}
	}
	jobs[len(jobs)-1].documents = 1
	return jobs
}

// listItem reads an item that splitItems has cut out. ok is false where the
// list must be read as a whole.
func (r *objectReader) listItem(j *job) (o *object, ok bool) {
	n, err := parseYAML(j.chunk.text)
	if err != nil || n == nil || n.Kind != yaml.SequenceNode || len(n.Content) != 1 {
		return nil, false
	}
	d := &decoder{base: j.chunk.line - 1, types: r.types}
	item := unalias(n.Content[0])
	at := place{file: r.file, document: 1, item: j.item, line: d.base + item.Line}
	return r.item(d, item, at, j.list.defaults), true
}
