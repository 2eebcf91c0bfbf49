package source

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxAliased limits what the aliases of a document may repeat: a few lines of
// nested aliases can stand for billions of values.
const maxAliased = 1_000_000

// decoder fills Kubernetes API types from trees. It is strict, and unlike the
// decoders of JSON it goes on after a mistake and knows the line of each.
// A decoder serves one document.
type decoder struct {
	base     int // added to the lines of the nodes
	types    map[reflect.Type]*structType
	mistakes []mistake
	inAlias  int
	aliased  int
}

// mistake is a field error with its line in the file.
type mistake struct {
	FieldError
	line int
}

// path is the way to a value. It is rendered only when something is wrong.
type path struct {
	up    *path
	name  string // of a field, or of a map key when index is mapKey
	index int
}

const (
	aField = -1
	mapKey = -2
)

func (p *path) String() string {
	if p == nil {
		return ""
	}
	before := p.up.String()
	switch {
	case p.index == mapKey:
		return before + "[" + p.name + "]"
	case p.index >= 0:
		return before + "[" + strconv.Itoa(p.index) + "]"
	case before == "":
		return p.name
	}
	return before + "." + p.name
}

func (d *decoder) fail(n *yaml.Node, p *path, value, problem string) {
	d.mistakes = append(d.mistakes, mistake{FieldError{Field: p.String(), Value: value, Problem: problem}, d.base + n.Line})
}

// decode fills v, a pointer to a struct, and returns the mistakes.
func (d *decoder) decode(n *yaml.Node, v any) []mistake {
	d.mistakes = nil
	d.value(n, reflect.ValueOf(v).Elem(), nil)
	return d.mistakes
}

func (d *decoder) value(n *yaml.Node, v reflect.Value, p *path) {
	if n.Kind == yaml.AliasNode {
		d.inAlias++
		defer func() { d.inAlias-- }()
		n = unalias(n)
	}
	if d.inAlias > 0 {
		if d.aliased++; d.aliased > maxAliased {
			if d.aliased == maxAliased+1 {
				d.fail(n, nil, "", fmt.Sprintf("the aliases of the document repeat more than %d values: write them out", maxAliased))
			}
			return
		}
	}
	if isNull(n) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), p)
	case reflect.Struct:
		d.structure(n, v, p)
	case reflect.Slice:
		d.list(n, v, p)
	case reflect.Map:
		d.mapping(n, v, p)
	default:
		d.scalar(n, v, p)
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, p *path) {
	t := d.structType(v.Type())
	if t.skipped {
		return
	}
	if t.unmarshals {
		d.unmarshal(n, v, p)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, p, scalarText(n), `is not an object: write its fields as "name: value"`)
		return
	}
	var seen uint64
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f, known := t.fields[key.Value]
		at := path{p, key.Value, aField}
		switch {
		case key.Kind != yaml.ScalarNode:
			d.fail(key, p, "", "has a field name that is not plain text")
		case key.ShortTag() == "!!merge":
			d.fail(key, &at, "", "merging is not supported: write the fields out")
		case !known:
			d.fail(key, &at, "", "unknown field: "+t.suggest(key.Value))
		case seen&f.bit != 0:
			d.fail(key, &at, "", "the field is given twice: remove one of them")
		default:
			seen |= f.bit
			d.value(value, v.FieldByIndex(f.index), &at)
		}
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, p *path) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, p, scalarText(n), `is not a list: put "- " in front of each entry`)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.value(c, v.Index(i), &path{p, "", i})
	}
}

// mapping fills a map with text keys, such as labels.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, p *path) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, p, scalarText(n), `is not an object: write its fields as "name: value"`)
		return
	}
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.Content)/2))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		k := reflect.ValueOf(key.Value).Convert(t.Key())
		at := path{p, key.Value, mapKey}
		switch {
		case key.Kind != yaml.ScalarNode:
			d.fail(key, p, "", "has a field name that is not plain text")
		case key.ShortTag() == "!!merge":
			d.fail(key, &at, "", "merging is not supported: write the fields out")
		case v.MapIndex(k).IsValid():
			d.fail(key, &at, "", "the field is given twice: remove one of them")
		default:
			e := reflect.New(t.Elem()).Elem()
			d.value(n.Content[i+1], e, &at)
			v.SetMapIndex(k, e)
		}
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, p *path) {
	problem := ""
	switch {
	case n.Kind != yaml.ScalarNode && v.Kind() == reflect.String:
		problem = "is a list or an object: text belongs here"
	case n.Kind != yaml.ScalarNode:
		problem = "is a list or an object: a single value belongs here"
	case v.Kind() == reflect.String:
		problem = setString(n, v)
	case v.Kind() == reflect.Bool:
		problem = setBool(n, v)
	case v.CanInt():
		problem = setInt(n, v)
	default:
		problem = "cannot be read by this program"
	}
	if problem != "" {
		d.fail(n, p, scalarText(n), problem)
	}
}

func setString(n *yaml.Node, v reflect.Value) string {
	switch n.ShortTag() {
	case "!!str", "!!timestamp", "!!merge":
		v.SetString(n.Value)
		return ""
	case "!!int", "!!float", "!!bool":
		return "is not text: put it in quotes"
	}
	return "has the tag " + n.Tag + ": text belongs here"
}

func setBool(n *yaml.Node, v reflect.Value) string {
	if n.ShortTag() != "!!bool" {
		return "is not a truth value: use true or false, without quotes"
	}
	v.SetBool(strings.EqualFold(n.Value, "true"))
	return ""
}

func setInt(n *yaml.Node, v reflect.Value) string {
	if n.ShortTag() != "!!int" {
		if _, err := strconv.Atoi(n.Value); err == nil {
			return "is text, not a number: leave out the quotes"
		}
		return "is not a whole number"
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || n.Value[0] == '0' {
		err = n.Decode(&i) // YAML's other notations
	}
	if err != nil || v.OverflowInt(i) {
		return fmt.Sprintf("is too large: a number of %d bits belongs here", v.Type().Bits())
	}
	v.SetInt(i)
	return ""
}

// scalarText returns a single value as people write it, and nothing for lists
// and objects.
func scalarText(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return ""
	case n.ShortTag() == "!!str":
		return strconv.Quote(n.Value)
	}
	return n.Value
}

// unmarshal fills a type that reads its own JSON. All of those that occur are
// written as one value.
func (d *decoder) unmarshal(n *yaml.Node, v reflect.Value, p *path) {
	text := []byte(n.Value)
	if tag := n.ShortTag(); tag == "!!str" || tag == "!!timestamp" {
		text = []byte(strconv.Quote(n.Value))
		if quoted, err := json.Marshal(n.Value); err == nil {
			text = quoted
		}
	}
	err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text)
	if n.Kind == yaml.ScalarNode && err == nil {
		return
	}
	d.fail(n, p, scalarText(n), unmarshalProblem(v.Type()))
}

func unmarshalProblem(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "is not a time: write it like 2026-01-31T12:00:00Z"
	case reflect.TypeFor[resource.Quantity]():
		return "is not a quantity: write it like 4, 500m or 16Gi"
	}
	return "is not a number or a name"
}
