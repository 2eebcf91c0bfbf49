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
	text := o.json()
	_ = o.tree() // the lines of the text, before it changes
	var ignored any
	if twice, _ := json.UnmarshalStrict(text, &ignored, json.DisallowDuplicateFields); len(o.problems) == 0 {
		e := explainer{Object: o}
		e.fields(twice, GivenTwice)
		o.problems = e.errs
	}
	o.short = true
	d := stdjson.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var values any
	if d.Decode(&values) == nil {
		if text, err := stdjson.Marshal(unabbreviated(values, reflect.TypeOf(into).Elem())); err == nil {
			o.text = text
		}
	}
	errs := o.Decode(into)
	for _, e := range errs {
		if f, ok := e.Err.(*FieldError); ok {
			f.Field = o.written(f.Field)
		}
	}
	return errs
}

// unabbreviated returns a value in the form that the decoder of a type reads.
func unabbreviated(v any, t reflect.Type) any {
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
			if _, ft := field(t, "", name); ft != nil {
				v[name] = unabbreviated(value, ft)
			}
		}
	case []any:
		for i := range v {
			if t.Kind() == reflect.Slice {
				v[i] = unabbreviated(v[i], t.Elem())
			}
		}
	}
	return v
}

// written returns the path of a field up to the single value that it is a part of.
func (o *Object) written(path string) string {
	_, value, rest := o.locate(path)
	if value.Kind == yaml.ScalarNode && !isNull(value) {
		path = path[:len(path)-len(rest)]
	}
	return path
}
