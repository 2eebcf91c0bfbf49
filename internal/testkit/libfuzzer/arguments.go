package libfuzzer

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
)

// lengthBytes is the size of the length before a string that is not the last argument.
const lengthBytes = 2

// decode makes arguments from the bytes of libFuzzer: numbers of their size in little endian,
// strings with a length before them, except for one that is the last argument, which takes what is
// left. Bytes that are missing are zero.
func decode(data []byte, types []reflect.Type) []any {
	values := make([]any, len(types))
	take := func(n int) []byte {
		n = min(n, len(data))
		part := data[:n]
		data = data[n:]
		return part
	}
	number := func(size int) uint64 {
		var b [8]byte
		copy(b[:], take(size))
		return binary.LittleEndian.Uint64(b[:])
	}
	for i, t := range types {
		v := reflect.New(t).Elem()
		switch t.Kind() {
		case reflect.String, reflect.Slice:
			n := len(data)
			if i < len(types)-1 {
				n = int(number(lengthBytes))
			}
			if t.Kind() == reflect.String {
				v.SetString(string(take(n)))
			} else {
				v.SetBytes(append([]byte{}, take(n)...))
			}
		case reflect.Bool:
			v.SetBool(number(1)&1 == 1)
		case reflect.Float32:
			v.SetFloat(float64(math.Float32frombits(uint32(number(4)))))
		case reflect.Float64:
			v.SetFloat(math.Float64frombits(number(8)))
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			v.SetUint(number(int(t.Size())))
		default: // signed numbers; package testing allows no other type
			bits := 64 - 8*int(t.Size())
			v.SetInt(int64(number(int(t.Size()))<<bits) >> bits)
		}
		values[i] = v.Interface()
	}
	return values
}

// encode is the opposite, for seeds.
func encode(values []any) ([]byte, error) {
	var data []byte
	for i, value := range values {
		switch v := reflect.ValueOf(value); v.Kind() {
		case reflect.String, reflect.Slice:
			if i < len(values)-1 {
				if v.Len() > math.MaxUint16 {
					return nil, fmt.Errorf("argument %d has %d bytes, of at most %d", i, v.Len(), math.MaxUint16)
				}
				data = binary.LittleEndian.AppendUint16(data, uint16(v.Len()))
			}
			if v.Kind() == reflect.String {
				data = append(data, v.String()...)
			} else {
				data = append(data, v.Bytes()...)
			}
		case reflect.Int, reflect.Uint:
			data = binary.LittleEndian.AppendUint64(data, uint64(v.Convert(reflect.TypeFor[int]()).Int()))
		default:
			var err error
			if data, err = binary.Append(data, binary.LittleEndian, value); err != nil {
				return nil, fmt.Errorf("argument %d: %w", i, err)
			}
		}
	}
	return data, nil
}
