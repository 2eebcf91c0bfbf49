package manifest

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// Object is the content of a document, or an item of a List.
type Object struct {
	Place
	doc      *Document
	base     int          // is added to the lines of root
	root     *yaml.Node   // nil until it is asked for, if the document is JSON
	text     []byte       // JSON; nil until it is asked for, if the document is YAML
	nodes    []*yaml.Node // items of a List that was parsed as a whole
	chunks   []chunk      // items that were cut out of a List
	problems []*Error     // with the conversion to JSON
	tooMany  bool         // repeated values; some are left out
	merged   bool         // with the next object, because no "---" is between them
	short    bool         // was read by DecodeShort
}

// Parse returns the content of a document; nil: it is null. The items of a List
// are parsed by [Object.ItemAt], which needs a fraction of the memory.
func (d *Document) Parse() (*Object, *Error) {
	switch {
	case d.broken != nil:
		return nil, &Error{Place: d.Place, Err: d.broken}
	case d.json:
		o := &Object{Place: d.Place, doc: d, text: d.text, base: d.Line - 1}
		o.cutJSON()
		return o, o.refuseLarge()
	}
	if o := d.cutYAML(); o != nil {
		return o, o.refuseLarge()
	}
	if err := tooLarge(d.text, false); err != nil {
		return nil, &Error{Place: d.Place, Err: err}
	}
	root, err := parseYAML(d.text)
	switch {
	case err != nil:
		at := d.Place
		at.Line, err = explainYAML(d.text, d.Line, err)
		return nil, &Error{Place: at, Err: err}
	case root == nil || isNull(root):
		return nil, nil
	}
	return d.newObject(root, d.Line-1, 0), nil
}

func (o *Object) refuseLarge() *Error {
	err := tooLarge(o.text, true)
	if len(o.chunks) > budget.FileObjects {
		err = errManyObjects
	}
	if err == nil {
		return nil
	}
	return &Error{Place: o.Place, Err: err}
}

func (d *Document) newObject(root *yaml.Node, base, item int) *Object {
	root = followAlias(root)
	o := &Object{Place: d.Place, doc: d, root: root, base: base}
	o.Item, o.Line = item, base+root.Line
	return o
}

func (o *Object) asJSON() []byte {
	if o.text == nil {
		root := o.asYAML()
		c := &converter{Object: o}
		text, err := stdjson.Marshal(c.convertValue(root))
		if c.more > 0 {
			o.problems = append(o.problems, o.errorAt(root, More(c.more, false)))
		}
		if o.doc.Convert != nil && !o.tooMany {
			text, err = o.doc.Convert(o.doc.text)
		}
		if err != nil {
			c.addProblem(o.root, "", "", "cannot be read: "+yamlLine.ReplaceAllString(err.Error(), ""))
		}
		o.text = append(text, ' ') // not nil
	}
	return o.text
}

// JSON returns the object as JSON, as far as it can be read.
func (o *Object) JSON() stdjson.RawMessage { return bytes.TrimSpace(o.asJSON()) }

// surrogates are escapes that JSON has and YAML does not.
var surrogates = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

func (o *Object) asYAML() *yaml.Node {
	if o.root == nil {
		text := surrogates.ReplaceAll(bytes.ReplaceAll(o.text, []byte("\t"), []byte(" ")), []byte("?"))
		if o.root, _ = parseYAML(text); o.root == nil {
			o.root = &yaml.Node{Kind: yaml.ScalarNode, Line: 1}
		}
	}
	return o.root
}

// Shown describes a value that is not an object in messages, for example "a list"; it is empty for objects. It does
// not quote text: a file that was named by mistake may hold secrets.
func (o *Object) Shown() string {
	if bytes.HasPrefix(o.text, []byte("{")) {
		return ""
	}
	switch n := o.asYAML(); {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return ""
	case n.ShortTag() == "!!str":
		return "text"
	}
	return "a single value"
}

// Type returns the kind and the API version of an object; empty: there is none.
func (o *Object) Type() (kind, apiVersion string) {
	return o.singleValue("kind"), o.singleValue("apiVersion")
}

func (o *Object) singleValue(name string) string {
	if o.root != nil {
		if i := index(o.root, name); i >= 0 && !isNull(followAlias(o.root.Content[i+1])) {
			return followAlias(o.root.Content[i+1]).Value
		}
	} else if d := o.jsonField(name); d != nil {
		var v any
		_ = d.Decode(&v)
		s, _ := v.(string)
		return s
	}
	return ""
}

// jsonField returns a decoder of JSON at the value of a field; nil: there is none.
func (o *Object) jsonField(name string) *stdjson.Decoder {
	d := stdjson.NewDecoder(bytes.NewReader(o.text))
	_, _ = d.Token()
	for d.More() {
		if t, _ := d.Token(); t == name {
			return d
		}
		if d.Decode(new(stdjson.RawMessage)) != nil {
			break
		}
	}
	return nil
}

// Items returns the number of objects in the field "items" of a List, and takes them out of the object.
func (o *Object) Items() (int, *Error) {
	if o.chunks != nil {
		return len(o.chunks), nil
	}
	i := index(o.asYAML(), "items")
	if i < 0 {
		return 0, nil
	}
	n := followAlias(o.root.Content[i+1])
	if n.Kind != yaml.SequenceNode && !isNull(n) {
		return 0, o.Error(&FieldError{Field: "items", Value: valueText(n), Problem: `is not a list: put "- " in front of each object`})
	}
	o.nodes = n.Content
	root := *o.root
	root.Content = slices.Clone(root.Content)
	root.Content[i+1] = &yaml.Node{Kind: yaml.SequenceNode}
	o.root = &root
	return len(o.nodes), nil
}

// ItemAt returns an item of a List, counted from 0; nil without a problem: it cannot be parsed
// without the others, see [Document.Whole].
func (o *Object) ItemAt(i int) (*Object, *Error) {
	if o.chunks == nil {
		return o.doc.newObject(o.nodes[i], o.base, i+1), nil
	}
	c := o.chunks[i]
	item := &Object{Place: o.Place, doc: o.doc, text: c.text, base: c.line - 1}
	item.Item, item.Line = i+1, c.line
	if o.doc.json {
		return item, item.refuseLarge()
	}
	err := tooLarge(c.text, false)
	if err != nil {
		return nil, &Error{Place: item.Place, Err: err}
	}
	root, err := parseYAML(c.text)
	switch {
	case err == nil && root != nil && root.Kind == yaml.SequenceNode && len(root.Content) == 1:
		return o.doc.newObject(root.Content[0], c.line-1, i+1), nil
	case tooLarge(o.doc.text, false) == nil:
		return nil, nil
	case err == nil:
		err = errors.New("cannot be read without the other items of the List, which is too large for that")
	default:
		item.Line, err = explainYAML(c.text, c.line, err)
	}
	return nil, &Error{Place: item.Place, Err: err}
}

// Error returns the error for a problem with a field, with the line of the field, or of
// the closest one around it that exists.
func (o *Object) Error(f *FieldError) *Error {
	key, _, _ := o.locateField(f.Field)
	if o.short {
		copied := *f
		copied.Field = o.writtenPath(f.Field)
		f = &copied
	}
	return o.errorAt(key, f)
}

// FieldLine returns the line of a field, or of the closest one around it that exists.
// In JSON it is the line of the object: to find a field there, the text is parsed again.
func (o *Object) FieldLine(path string) int {
	if o.root == nil {
		return o.Line
	}
	key, _, _ := o.locateField(path)
	return o.base + key.Line
}

// EntryLines returns the lines of the entries of a list; nil in JSON, or if there is no such list.
func (o *Object) EntryLines(path string) (lines []int) {
	if o.root == nil {
		return nil
	}
	_, list, rest := o.locateField(path)
	if rest != "" || list.Kind != yaml.SequenceNode {
		return nil
	}
	lines = make([]int, 0, len(list.Content))
	for _, entry := range list.Content {
		lines = append(lines, o.base+entry.Line)
	}
	return lines
}

func (o *Object) errorAt(n *yaml.Node, f *FieldError) *Error {
	at := o.Place
	at.Line = o.base + n.Line
	return &Error{Place: at, Err: f}
}

// locateField returns the key and the value of a field, or of the closest one around it that exists, and the rest
// of the path, with the separator, that does not. Of fields that are given twice it is the last one.
func (o *Object) locateField(path string) (key, value *yaml.Node, rest string) {
	n := o.asYAML()
	key = n
	for path != "" {
		whole := path
		if rest, only := strings.CutPrefix(path, "[0]"); only && o.short && n.Kind == yaml.MappingNode {
			path = rest // in place of a list
			continue
		}
		path = strings.TrimLeft(path, ".[]")
		number, after, _ := strings.Cut(path, "]")
		if i, err := strconv.Atoi(number); n.Kind == yaml.SequenceNode && err == nil && i < len(n.Content) {
			key, path = n.Content[i], after
			n = followAlias(key)
			continue
		}
		i, rest := -1, path
		for j := 0; n.Kind == yaml.MappingNode && j < len(n.Content); j += 2 {
			// Names may hold dots, as names of annotations do: the longest counts.
			after, ok := strings.CutPrefix(path, n.Content[j].Value)
			if ok && (after == "" || strings.Contains(".[]", after[:1])) && len(after) <= len(rest) {
				i, rest = j, after
			}
		}
		if i < 0 {
			return key, n, whole
		}
		key, path = n.Content[i], rest
		n = followAlias(n.Content[i+1])
	}
	return key, n, ""
}

// index returns the place of a field in the content of an object; -1: none.
func index(n *yaml.Node, field string) int {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			return i
		}
	}
	return -1
}

func followAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.ShortTag() == "!!null" }

// valueText returns a single value as it is written in YAML; empty: n is a list or an object.
func valueText(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		return Quote(n.Value)
	}
	return n.Value
}
