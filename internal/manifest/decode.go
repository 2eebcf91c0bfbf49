package manifest

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/json"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// UnknownField begins the problem of a field that the type does not have.
const UnknownField = "unknown field"

// Decode fills into, a pointer to a struct, as far as possible, and returns the
// problems by line, each of them a [*FieldError].
func (o *Object) Decode(into any) []*Error {
	strict, err := json.UnmarshalStrict(o.asJSON(), into)
	if len(o.problems) == 0 && len(strict) == 0 && err == nil {
		return nil
	}
	if o.tooMany || o.merged {
		return o.problems
	}
	e := &explainer{Object: o, root: reflect.TypeOf(into).Elem(), errs: o.problems}
	var values any
	strict, _ = json.UnmarshalStrict(o.text, &values, json.DisallowDuplicateFields)
	e.explainFields(strict, GivenTwice)
	d := stdjson.NewDecoder(bytes.NewReader(o.text))
	d.UseNumber() // 80.0 is not 80 here
	_ = d.Decode(&values)
	values, _ = e.fittingPart(values, e.root, "")
	text, _ := stdjson.Marshal(values)
	reflect.ValueOf(into).Elem().SetZero()
	strict, err = json.UnmarshalStrict(text, into, json.DisallowUnknownFields)
	e.explainFields(strict, UnknownField)
	if err != nil {
		e.errs = append(e.errs, o.Error(&FieldError{Problem: "cannot be read"}))
	}
	slices.SortStableFunc(e.errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return e.errs
}

// explainer finds all reasons why an object does not fit a type. The decoder stops
// at the first one, and does not always locate it.
type explainer struct {
	*Object
	root reflect.Type
	errs []*Error
}

func (e *explainer) explainFields(strict []error, problem string) {
	for _, err := range strict {
		f, ok := err.(json.FieldError)
		if !ok {
			continue
		}
		text := problem
		if problem == UnknownField {
			text = e.explainUnknown(f.FieldPath())
		}
		e.errs = append(e.errs, e.Error(&FieldError{Field: f.FieldPath(), Problem: text}))
	}
}

func (e *explainer) explainUnknown(path string) string {
	around, name := e.root, path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		around, name = typeAt(e.root, path[:i]), path[i+1:]
	}
	if t := structOf(around); t != nil {
		if similar := suggest.Similar(name, slices.Sorted(maps.Keys(fieldsOf(t)))); len(similar) > 0 {
			return UnknownField + suggest.DidYouMean(similar[:1])
		}
	}
	return UnknownField + ": check its spelling and indentation"
}

var indices = regexp.MustCompile(`\[\d+\]`)

// typeAt returns the type of a field; nil: it is unknown.
func typeAt(t reflect.Type, path string) reflect.Type {
	for name := range strings.SplitSeq(indices.ReplaceAllString(path, ""), ".") {
		if _, t = fieldOf(structOf(t), "", name); t == nil {
			return nil
		}
	}
	return t
}

// structOf returns the struct that a type points to or lists; nil: none.
func structOf(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func fitsType(v any, t reflect.Type) bool {
	text, err := stdjson.Marshal(v)
	return err == nil && json.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface()) == nil
}

// fittingPart returns a value without the parts that do not fit a type, and reports
// these parts. ok is false if no part of the value fits. Without a type, any does: its field is unknown.
func (e *explainer) fittingPart(v any, t reflect.Type, path string) (fitting any, ok bool) {
	if t == nil || fitsType(v, t) {
		return v, true
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case nil: // leaves the field as it is
		return nil, false
	case map[string]any:
		if !fitsType(map[string]any{}, t) {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at, ft := fieldOf(t, path, name)
			if v[name], ok = e.fittingPart(v[name], ft, at); !ok {
				delete(v, name)
			}
		}
		return v, true
	case []any:
		if t.Kind() != reflect.Slice || !fitsType([]any{}, t) {
			break
		}
		for i := range v {
			v[i], _ = e.fittingPart(v[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
		return v, true
	}
	if len(e.errs) > budget.Findings {
		return nil, false
	}
	_, n, _ := e.locateField(path)
	e.errs = append(e.errs, e.errorAt(n, &FieldError{Field: path, Value: valueText(n), Problem: explainMismatch(v, t)}))
	return nil, false
}

// fieldOf returns the path and the type of a field; nil: the type does not have it.
func fieldOf(t reflect.Type, path, name string) (string, reflect.Type) {
	switch {
	case t != nil && t.Kind() == reflect.Map:
		return path + "[" + name + "]", t.Elem()
	case path != "":
		path += "."
	}
	if t != nil && t.Kind() == reflect.Struct {
		return path + name, fieldsOf(t)[name]
	}
	return path + name, nil
}

// knownFields has the result of fieldsOf by type: there are few types, and finding the fields of one
// takes longer than all else about a small object.
var knownFields sync.Map

// fieldsOf returns the types of the fields of a struct, by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	out := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, twice := out[tag]; !twice && tag != "" && tag != "-" {
			out[tag] = f.Type
		}
	}
	knownFields.Store(t, out)
	return out
}

// forms describe the types that parse their own text, by name.
var forms = map[string]string{
	"Time":               "time: write it like 2026-01-31T12:00:00Z",
	"MicroTime":          "time: write it like 2026-01-31T12:00:00Z",
	"Quantity":           "quantity: write it like 4, 500m or 16Gi",
	"QuantityValue":      "quantity: write it like 4, 500m or 16Gi",
	"Duration":           "duration: write it like 30s or 5m",
	"TimeOrMetaDuration": "duration: write it like 30s or 5m",
	"IntOrString":        "number or a name",
}

// NotText is the problem of another value where text belongs.
const NotText = "is not text: put it in quotes"

func explainMismatch(v any, t reflect.Type) string {
	if text, ok := forms[t.Name()]; ok {
		return "is not a " + text
	}
	number, isNumber := v.(stdjson.Number)
	kind, holds := t.Kind(), reflect.ValueOf(v).Kind()
	switch {
	case kind == reflect.Struct || kind == reflect.Map:
		return `is not an object: write its fields as "name: value"`
	case kind == reflect.Slice:
		return `is not a list: put "- " in front of each entry`
	case holds == reflect.Map || holds == reflect.Slice:
		return "is a list or an object: a single value belongs here"
	case kind == reflect.String:
		return NotText
	case kind == reflect.Bool:
		return "is not a truth value: use true or false, without quotes"
	case kind >= reflect.Float32:
		return "is not a number"
	case isNumber && !strings.ContainsAny(string(number), ".eE") && kind >= reflect.Uint:
		return fmt.Sprintf("is out of range: use 0 to %d", uint64(1)<<t.Bits()-1)
	case isNumber && !strings.ContainsAny(string(number), ".eE"):
		return fmt.Sprintf("is out of range: use %d to %d", -1<<(t.Bits()-1), uint64(1)<<(t.Bits()-1)-1)
	}
	if text, _ := v.(string); len(text) > 0 && strings.Trim(text, "0123456789") == "" {
		return "is text, not a number: leave out the quotes"
	}
	return "is not a whole number"
}

// List is a list that may be written as a single value, if it has one.
type List[T any] []T

func (List[T]) isList() {}

// Abbreviated is implemented by structs that may be written as the value of one of their fields.
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
