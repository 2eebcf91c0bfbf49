package source

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// structType is what the decoder knows of a struct.
type structType struct {
	skipped    bool // nobody reads it
	unmarshals bool // reads its own JSON
	fields     map[string]structField
}

type structField struct {
	index []int
	bit   uint64 // zero from the 65th field on: not checked for duplicates
}

func (d *decoder) structType(t reflect.Type) *structType {
	if known, ok := d.types[t]; ok {
		return known
	}
	s := &structType{
		// The field sets of managedFields are large.
		skipped:    t == reflect.TypeFor[ignored]() || t == reflect.TypeFor[metav1.FieldsV1](),
		unmarshals: reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()),
		fields:     make(map[string]structField),
	}
	if !s.unmarshals {
		s.addFields(t, nil)
	}
	d.types[t] = s
	return s
}

// addFields adds the fields of t by their JSON names, those of embedded
// structs as if they were its own.
func (s *structType) addFields(t reflect.Type, prefix []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(prefix), i)
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			s.addFields(f.Type, index)
		default:
			s.fields[name] = structField{index, 1 << len(s.fields)}
		}
	}
}

// suggest says what to write in place of an unknown field.
func (s *structType) suggest(name string) string {
	names := make([]string, 0, len(s.fields))
	for known := range s.fields {
		names = append(names, known)
	}
	slices.Sort(names)
	best, distance := "", 3
	for _, known := range names {
		if d := editDistance(strings.ToLower(name), strings.ToLower(known)); d < distance {
			best, distance = known, d
		}
	}
	if best != "" && distance < len(name) {
		return `did you mean "` + best + `"?`
	}
	return "known here are " + strings.Join(names, ", ")
}

// editDistance counts the letters to insert, delete or replace.
func editDistance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return 3 // further than anybody asks
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
