package manifest

import (
	"bytes"
	stdjson "encoding/json"
	"reflect"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/json"
)

// List is a list that may be written as a single value, if it has one.
type List[T any] []T

func (List[T]) isList() {}

// Abbreviated is implemented by structs that may be written as the value of one of
// their fields.
type Abbreviated interface {
	// MainField returns the name of that field.
	MainField() string
}

var (
	listType        = reflect.TypeFor[interface{ isList() }]()
	abbreviatedType = reflect.TypeFor[Abbreviated]()
)

// DecodeShort is [Object.Decode] for a type with a [List] or [Abbreviated] in it. The
// problems, and errors of [Object.Error] from then on, name fields as they are written:
// "backends" in place of "backends[0].address", if it has a single value.
func (o *Object) DecodeShort(into any) []*Error {
	text := o.asJSON()
	_ = o.asYAML() // the lines of the text, before it changes
	var ignored any
	if twice, _ := json.UnmarshalStrict(text, &ignored, json.DisallowDuplicateFields); len(o.problems) == 0 {
		e := explainer{Object: o}
		e.explainFields(twice, GivenTwice)
		o.problems = e.errs
	}
	o.short = true
	d := stdjson.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var values any
	if d.Decode(&values) == nil {
		if text, err := stdjson.Marshal(expandShort(values, reflect.TypeOf(into).Elem())); err == nil {
			o.text = text
		}
	}
	errs := o.Decode(into)
	for _, e := range errs {
		if f, ok := e.Err.(*FieldError); ok {
			f.Field = o.writtenPath(f.Field)
		}
	}
	return errs
}

// expandShort returns a value in the form that the decoder of a type reads.
func expandShort(v any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, isList := v.([]any); v != nil && !isList && t.Implements(listType) {
		v = []any{v}
	}
	_, isMap := v.(map[string]any)
	_, isList := v.([]any)
	if v != nil && !isMap && !isList && t.Implements(abbreviatedType) {
		v = map[string]any{reflect.Zero(t).Interface().(Abbreviated).MainField(): v}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if _, ft := fieldOf(t, "", name); ft != nil {
				v[name] = expandShort(value, ft)
			}
		}
	case []any:
		for i := range v {
			if t.Kind() == reflect.Slice {
				v[i] = expandShort(v[i], t.Elem())
			}
		}
	}
	return v
}

// writtenPath returns the path of a field up to the single value that it is a part of.
func (o *Object) writtenPath(path string) string {
	_, value, rest := o.locateField(path)
	if value.Kind == yaml.ScalarNode && !isNull(value) {
		path = path[:len(path)-len(rest)]
	}
	return path
}
