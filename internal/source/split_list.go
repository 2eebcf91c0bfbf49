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
func splitItems(c chunk) (head chunk, items []chunk, ok bool) {
	var before, after []byte
	line, indent := c.line, -1
	state := beforeItems
	for pos := 0; pos < len(c.text); line++ {
		end := lineEnd(c.text, pos)
		text := c.text[pos:end]
		spaces := len(text) - len(bytes.TrimLeft(text, " "))
		content := bytes.TrimSpace(text)
		if state == inItems && len(content) > 0 && content[0] != '#' {
			if indent < 0 {
				indent = spaces
			}
			switch {
			case spaces == indent && isEntry(content):
				items = append(items, chunk{c.text[pos:pos], line})
			case len(items) == 0:
				return chunk{}, nil, false
			case spaces <= indent:
				state = afterItems
			}
		}
		switch {
		case state == inItems && len(items) > 0:
			last := &items[len(items)-1]
			last.text = c.text[pos-len(last.text) : end]
		case state == afterItems:
			after = c.text[pos:]
			end = len(c.text)
		case state == beforeItems && spaces == 0 && string(content) == "items:":
			before = append(bytes.Clone(c.text[:pos]), "items: []\n"...)
			state = inItems
		}
		pos = end
	}
	return chunk{bytes.Join([][]byte{before, after}, nil), c.line}, items, len(items) > 0
}

const (
	beforeItems = iota
	inItems
	afterItems
)

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
	n, err := parseYAML(head.text)
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
