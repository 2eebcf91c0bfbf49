package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills API types from trees. Unlike the decoders of the Kubernetes
// libraries it knows the line of what is wrong, and goes on after it.
type decoder struct {
	file     string
	remarks  []Remark
	problems []error
}

func (d *decoder) remark(message string, args ...any) {
	d.remarks = append(d.remarks, Remark{message, args})
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	d.problems = append(d.problems, fmt.Errorf("%s: line %d: %s%s", d.file, n.Line, path, fmt.Sprintf(format, args...)))
}

// value fills v. null leaves a field unset.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	v.SetZero()
	if n.ShortTag() == "!!null" {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	_, readsItself := v.Addr().Interface().(json.Unmarshaler)
	switch kind := v.Kind(); {
	case readsItself:
		d.leaf(n, v, path)
	case kind == reflect.Struct:
		d.structure(n, v, path)
	case kind == reflect.Slice:
		d.list(n, v, path)
	case kind == reflect.Map:
		d.mapping(n, v, path)
	default:
		d.leaf(n, v, path)
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		index, known := fields[key.Value]
		if !known {
			d.remark("unknown field in the configuration file has no effect: check its spelling", "file", d.file, "line", key.Line, "field", at)
			return
		}
		d.value(value, v.FieldByIndex(index), at)
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(value, element, at)
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	})
}

// pairs calls f for the fields of an object. Of equal ones the last counts, as
// it is filled last.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node, at string)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, `is not an object: write its fields as "name: value"`)
		return
	}
	seen := make(map[string]bool)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		at := under(path, key.Value)
		if seen[key.Value] {
			d.remark("field stands twice in the configuration file: the last one counts", "file", d.file, "line", key.Line, "field", at)
		}
		seen[key.Value] = true
		f(key, value, at)
	}
	m := merge{d, path, f, seen, map[*yaml.Node]bool{n: true}}
	for _, value := range merges {
		m.add(value)
	}
}

// under returns the path of a field.
func under(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// merge adds fields of other objects to one: the merge key "<<" of YAML 1.1.
// What the object has itself counts, then what was merged first.
type merge struct {
	*decoder
	path string
	f    func(key, value *yaml.Node, at string)
	seen map[string]bool     // fields
	done map[*yaml.Node]bool // objects: one may be merged into itself
}

// add merges an object, or each of a list.
func (m *merge) add(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case m.done[n]:
		return
	case n.Kind == yaml.SequenceNode:
		m.done[n] = true
		for _, c := range n.Content {
			m.add(c)
		}
		return
	case n.Kind != yaml.MappingNode:
		m.fail(n, under(m.path, "<<"), "is not an object to merge, nor a list of such")
		return
	}
	m.done[n] = true
	var more []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key, value := n.Content[i], n.Content[i+1]; {
		case key.ShortTag() == "!!merge":
			more = append(more, value)
		case !m.seen[key.Value]:
			m.seen[key.Value] = true
			m.f(key, value, under(m.path, key.Value))
		}
	}
	for _, value := range more {
		m.add(value)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, `is not a list: put "- " in front of each entry`)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.value(c, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

// leaf fills a single value.
func (d *decoder) leaf(n *yaml.Node, v reflect.Value, path string) {
	var err error
	switch tag := n.ShortTag(); {
	case v.Kind() == reflect.String && (tag == "!!str" || tag == "!!timestamp"):
		v.SetString(n.Value)
	case v.Kind() == reflect.Bool:
		err = n.Decode(v.Addr().Interface()) // knows more words than JSON
	default:
		err = throughJSON(n, v)
	}
	if err != nil {
		d.fail(n, path, "%s belongs here, not %s", expected(v), shown(n))
	}
}

// throughJSON fills a value as the Kubernetes libraries do.
func throughJSON(n *yaml.Node, v reflect.Value) error {
	var plain any
	if err := n.Decode(&plain); err != nil {
		return err
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v.Addr().Interface())
}

// expected says what a field takes.
func expected(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text, in quotes if it looks like a number,"
	case reflect.Int32:
		return "a whole number"
	case reflect.Uint32:
		return "a whole number of 0 or more"
	case reflect.Float32:
		return "a number"
	}
	if strings.Contains(v.Type().Name(), "Duration") {
		return "a time such as 30s or 5m"
	}
	return "a quantity such as 512 or 16Ki"
}

func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "an object"
	}
	return fmt.Sprintf("%q", n.Value)
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string][]int {
	fields := make(map[string][]int)
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Index
		}
	}
	return fields
}
