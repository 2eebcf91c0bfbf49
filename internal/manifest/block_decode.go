package manifest

import (
	"encoding"
	stdjson "encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// blockDecoder fills a zero value from a node, as the decoder of JSON would. It gives up with
// false at all of which that would report something.
type blockDecoder func(b *block, i int, v reflect.Value) bool

// decode fills a pointer to a zero value, or leaves it zero.
func (b *block) decode(into any) bool {
	v := reflect.ValueOf(into).Elem()
	if !v.IsZero() {
		return false
	}
	if decoderOf(v.Type())(b, 0, v) {
		return true
	}
	v.SetZero()
	return false
}

var (
	blockDecoders   sync.Map // by reflect.Type
	unmarshalerType = reflect.TypeFor[stdjson.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decoderOf returns the decoder of a type, which is made when it is first used: a type may
// contain itself.
func decoderOf(t reflect.Type) blockDecoder {
	if known, ok := blockDecoders.Load(t); ok {
		return known.(blockDecoder)
	}
	decoder := sync.OnceValue(func() blockDecoder { return newDecoder(t) })
	known, _ := blockDecoders.LoadOrStore(t, blockDecoder(func(b *block, i int, v reflect.Value) bool { return decoder()(b, i, v) }))
	return known.(blockDecoder)
}

func giveUp(*block, int, reflect.Value) bool { return false }

func newDecoder(t reflect.Type) blockDecoder {
	switch p := reflect.PointerTo(t); {
	case t.Kind() == reflect.Pointer:
		return pointerDecoder(t.Elem())
	case p.Implements(unmarshalerType):
		return unmarshal
	case p.Implements(textType), t == reflect.TypeFor[stdjson.Number]():
		return giveUp
	}
	switch t.Kind() {
	case reflect.String:
		return decodeText
	case reflect.Bool:
		return decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInteger
	case reflect.Struct:
		return structDecoder(t)
	case reflect.Slice:
		return listDecoder(t)
	case reflect.Map:
		return mapDecoder(t)
	}
	return giveUp
}

// isNull reports whether a node is null, which leaves a value as it is.
func (b *block) isNull(i int) bool {
	n := &b.nodes[i]
	return n.kind == blockNull || n.kind == blockPlain && plainKindOf(b.of(n.text)) == plainNull
}

func pointerDecoder(to reflect.Type) blockDecoder {
	decode := decoderOf(to)
	return func(b *block, i int, v reflect.Value) bool {
		if b.isNull(i) {
			return true
		}
		v.Set(reflect.New(to))
		return decode(b, i, v.Elem())
	}
}

// unmarshal gives types that decode themselves the JSON that the YAML of the value becomes.
func unmarshal(b *block, i int, v reflect.Value) bool {
	value, ok := b.value(i)
	if !ok {
		return false
	}
	text, err := stdjson.Marshal(value)
	return err == nil && v.Addr().Interface().(stdjson.Unmarshaler).UnmarshalJSON(text) == nil
}

func decodeText(b *block, i int, v reflect.Value) bool {
	text, ok := b.scalarText(&b.nodes[i])
	if ok {
		v.SetString(text)
	}
	return ok || b.isNull(i)
}

func decodeBool(b *block, i int, v reflect.Value) bool {
	n := &b.nodes[i]
	if n.kind != blockPlain {
		return n.kind == blockNull
	}
	kind := plainKindOf(b.of(n.text))
	v.SetBool(kind == plainTrue)
	return kind == plainTrue || kind == plainFalse || kind == plainNull
}

func decodeInteger(b *block, i int, v reflect.Value) bool {
	n := &b.nodes[i]
	if n.kind != blockPlain || plainKindOf(b.of(n.text)) != plainInteger {
		return b.isNull(i)
	}
	number, err := strconv.ParseInt(string(b.of(n.text)), 10, 64)
	if err != nil || v.OverflowInt(number) {
		return false
	}
	v.SetInt(number)
	return true
}

func listDecoder(t reflect.Type) blockDecoder {
	if t.Elem().Kind() == reflect.Uint8 { // base64
		return giveUp
	}
	decode := decoderOf(t.Elem())
	return func(b *block, i int, v reflect.Value) bool {
		n := &b.nodes[i]
		if n.kind != blockList {
			return b.isNull(i)
		}
		count := 0
		for j := i + 1; j < int(n.next); j = int(b.nodes[j].next) {
			count++
		}
		v.Set(reflect.MakeSlice(t, count, count))
		for j, at := i+1, 0; j < int(n.next); j, at = int(b.nodes[j].next), at+1 {
			if !decode(b, j, v.Index(at)) {
				return false
			}
		}
		return true
	}
}

func mapDecoder(t reflect.Type) blockDecoder {
	if t.Key().Kind() != reflect.String || t.Key().Implements(textType) || reflect.PointerTo(t.Key()).Implements(textType) {
		return giveUp
	}
	decode := decoderOf(t.Elem())
	return func(b *block, i int, v reflect.Value) bool {
		n := &b.nodes[i]
		if n.kind != blockObject {
			return b.isNull(i)
		}
		v.Set(reflect.MakeMap(t))
		for j := i + 1; j < int(n.next); j = int(b.nodes[j].next) {
			key := reflect.ValueOf(string(b.of(b.nodes[j].key))).Convert(t.Key())
			if v.MapIndex(key).IsValid() { // given twice
				return false
			}
			value := reflect.New(t.Elem()).Elem()
			if !decode(b, j, value) {
				return false
			}
			v.SetMapIndex(key, value)
		}
		return true
	}
}

// blockField is a field of a struct.
type blockField struct {
	number int // of the fields with a name
	index  []int
	decode blockDecoder
}

func structDecoder(t reflect.Type) blockDecoder {
	fields := make(map[string]blockField)
	if !addFields(fields, t, nil) || len(fields) > 64 {
		return giveUp
	}
	return func(b *block, i int, v reflect.Value) bool {
		n := &b.nodes[i]
		if n.kind != blockObject {
			return b.isNull(i)
		}
		var seen uint64
		for j := i + 1; j < int(n.next); j = int(b.nodes[j].next) {
			f, known := fields[string(b.of(b.nodes[j].key))]
			if !known || seen&(1<<f.number) != 0 || !f.decode(b, j, v.FieldByIndex(f.index)) {
				return false
			}
			seen |= 1 << f.number
		}
		return true
	}
}

// addFields adds the fields of a struct, and of those embedded in it; false: their names are
// not simple.
func addFields(fields map[string]blockField, t reflect.Type, around []int) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(around[:len(around):len(around)], i)
		_, taken := fields[name]
		switch {
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			if !addFields(fields, f.Type, index) {
				return false
			}
			continue
		case name == "" && !f.IsExported(), name == "-" && options == "":
			continue
		case name == "", !f.IsExported(), taken, strings.Contains(options, "string"):
			return false
		}
		fields[name] = blockField{len(fields), index, decoderOf(f.Type)}
	}
	return true
}

// value returns a value as the YAML parser and [converter] do.
func (b *block) value(i int) (any, bool) {
	n := &b.nodes[i]
	switch n.kind {
	case blockNull:
		return nil, true
	case blockObject:
		return b.fields(i)
	case blockList:
		list := []any{}
		for j := i + 1; j < int(n.next); j = int(b.nodes[j].next) {
			value, ok := b.value(j)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	case blockPlain:
		switch text := b.of(n.text); plainKindOf(text) {
		case plainNull:
			return nil, true
		case plainTrue, plainFalse:
			return plainKindOf(text) == plainTrue, true
		case plainInteger:
			return stdjson.Number(text), true
		case plainOther:
			return nil, false
		}
	}
	return b.scalarText(n)
}

func (b *block) fields(i int) (any, bool) {
	fields := make(map[string]any)
	for j := i + 1; j < int(b.nodes[i].next); j = int(b.nodes[j].next) {
		name := string(b.of(b.nodes[j].key))
		if _, taken := fields[name]; taken {
			return nil, false
		}
		value, ok := b.value(j)
		if !ok {
			return nil, false
		}
		fields[name] = value
	}
	return fields, true
}
