package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// listShape makes the texts of the entries of a list.
type listShape struct {
	name string
	text func(i int) string
	// words means that fields with a few known values have the text, too.
	words bool
}

// mapShapes are for maps, whose keys are always different; listShapes are for lists.
var (
	mapShapes = []listShape{
		{"different names", func(i int) string { return fmt.Sprintf("a-%d", i) }, false},
		{"quotes and control characters", func(int) string { return "\"\x00\u2028\\'\x7f," }, false},
		{"long texts", func(int) string { return strings.Repeat("a", 10_000) }, false},
		{"one long text", func(int) string { return strings.Repeat("9", walkObject-1000) }, false},
	}
	listShapes = append(mapShapes[:len(mapShapes):len(mapShapes)], []listShape{
		{"the same name", func(int) string { return "a" }, false},
		{"no text", func(int) string { return "" }, false},
		{"unknown words", func(i int) string { return fmt.Sprintf("a-%d", i) }, true},
		{"addresses", walkAddress, false},
		{"the same address", func(int) string { return "10.0.0.1" }, false},
		{"addresses of IPv6", func(i int) string { return fmt.Sprintf("fd00::%x", i) }, false},
		{"nested prefixes", func(i int) string { return fmt.Sprintf("10.%d.%d.0/%d", i>>8&255, i&255, 8+i%17) }, false},
		{"all prefixes", func(int) string { return "0.0.0.0/0" }, false},
	}...)
)

// listCases are the cases of every list and every map of the objects, at any depth.
func listCases(t *testing.T) (out []walkCase) {
	service := func() walked { return serviceWith(nil) }
	slice := func() walked { return sliceWith(nil) }
	for _, kind := range []struct {
		name  string
		paths [][]int
		build func() walked
		of    func(walked) any
	}{
		{"Service", pathsOf(reflect.TypeFor[corev1.Service]()), service, func(o walked) any { return o.service }},
		{"EndpointSlice", pathsOf(reflect.TypeFor[discoveryv1.EndpointSlice]()), slice, func(o walked) any { return o.slices[0] }},
		{"Node", pathsOf(reflect.TypeFor[corev1.Node]()), func() walked { return walked{node: walkNode()} }, func(o walked) any { return o.node }},
	} {
		if len(kind.paths) < 10 {
			t.Fatalf("%d lists of a %s", len(kind.paths), kind.name)
		}
		for _, path := range kind.paths {
			name, isMap := pathText(reflect.TypeOf(kind.of(kind.build())).Elem(), path)
			shapes := listShapes
			if isMap {
				shapes = mapShapes
			}
			for _, shape := range shapes {
				field := fmt.Sprintf("%s `%s`", kind.name, name)
				out = append(out, walkCase{field, shape.name, func() walked {
					o := kind.build()
					fillPath(reflect.ValueOf(kind.of(o)).Elem(), path, shape)
					return o
				}})
			}
		}
	}
	return out
}

// pathsOf returns the indexes of fields that lead to each list and map of a type. A field of
// the entries of a list follows the field of the list.
func pathsOf(t reflect.Type) (out [][]int) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Type == reflect.TypeFor[[]byte]() {
			continue
		}
		if k := f.Type.Kind(); k == reflect.Map || k == reflect.Slice {
			out = append(out, []int{i})
		}
		for _, rest := range pathsOf(f.Type) {
			out = append(out, append([]int{i}, rest...))
		}
	}
	return out
}

// pathText returns for example "spec.ports", and whether it is a map.
func pathText(t reflect.Type, path []int) (text string, isMap bool) {
	var names []string
	for _, i := range path {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
		t = f.Type
	}
	return strings.Join(names, "."), t.Kind() == reflect.Map
}

// fillPath fills the list at the end of a path as far as the object may grow. Lists on the way
// to it have the entry that they have, or one.
func fillPath(v reflect.Value, path []int, shape listShape) {
	for n, i := range path {
		v = v.Field(i)
		for last := n == len(path)-1; !last && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice); {
			switch {
			case v.Kind() == reflect.Pointer && v.IsNil():
				v.Set(reflect.New(v.Type().Elem()))
			case v.Kind() == reflect.Slice && v.Len() == 0:
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
				fillEntry(v.Index(0), listShapes[0], 0)
			case v.Kind() == reflect.Slice:
				v = v.Index(0)
			default:
				v = v.Elem()
			}
		}
	}
	if v.Kind() == reflect.Map {
		fillMap(v, shape)
		return
	}
	n := entriesThatFit(v.Type().Elem(), shape)
	switch v.Type() {
	case reflect.TypeFor[[]discoveryv1.Endpoint]():
		n = min(n, walkEndpoints)
	case reflect.TypeFor[[]discoveryv1.EndpointPort]():
		n = min(n, walkSlicePorts)
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		fillEntry(v.Index(i), shape, i)
	}
}

func entriesThatFit(t reflect.Type, shape listShape) int {
	one := reflect.New(t).Elem()
	fillEntry(one, shape, 1000)
	return max(1, walkObject/sizeOf(one))
}

// sizeOf returns about the size of a value in JSON, with a comma.
func sizeOf(v reflect.Value) (size int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len() + 3
	case reflect.Pointer:
		return sizeOf(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			size += sizeOf(v.Index(i))
		}
		return size + 3
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !v.Field(i).IsZero() {
				size += len(name) + 3 + sizeOf(v.Field(i))
			}
		}
		return size + 3
	}
	return 5
}

// fillMap adds entries to a map, so that the object keeps what makes it count.
func fillMap(v reflect.Value, shape listShape) {
	t := v.Type()
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	for i, size := 0, 0; size < walkObject; i++ {
		text := shape.text(i)
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		key.SetString(fmt.Sprintf("%d-%.200s", i, text))
		fillEntry(value, shape, i)
		size += key.Len() + len(text) + 6
		v.SetMapIndex(key, value)
	}
}

// fillEntry gives each field of an entry the text of its number, or the number.
func fillEntry(v reflect.Value, shape listShape, i int) {
	if !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if shape.words || v.Type() == reflect.TypeFor[string]() || slices.Contains(listedWords, v.Type()) {
			v.SetString(shape.text(i))
		}
	case reflect.Int32, reflect.Int64:
		if v.Type().PkgPath() == "" { // others are words
			v.SetInt(int64(1 + i%65_535))
		}
	case reflect.Bool:
		v.SetBool(i%2 == 0)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if fillEntry(v.Elem(), shape, i); v.Elem().IsZero() {
			v.SetZero()
		}
	case reflect.Struct:
		for j := range v.NumField() {
			fillEntry(v.Field(j), shape, i)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fillEntry(v.Index(0), shape, i)
		}
	}
}

// listedWords are types of words that are entries of a list by themselves.
var listedWords = []reflect.Type{reflect.TypeFor[corev1.IPFamily](), reflect.TypeFor[corev1.FinalizerName](), reflect.TypeFor[corev1.UniqueVolumeName]()}
