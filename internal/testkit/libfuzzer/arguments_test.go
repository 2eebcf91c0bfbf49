package libfuzzer

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestArguments: decode reads what encode writes, and fewer bytes as well.
func TestArguments(t *testing.T) {
	for _, values := range [][]any{
		{"text"}, {[]byte("bytes")}, {"", "", []byte("rest")}, {"a\x00b", true, "c"},
		{int8(-1), int16(-2), int32(-3), int64(math.MinInt64), -4},
		{uint8(1), uint16(2), uint32(3), uint64(math.MaxUint64), uint(4)},
		{float32(1.5), math.Inf(-1), false},
	} {
		var types []reflect.Type
		for _, v := range values {
			types = append(types, reflect.TypeOf(v))
		}
		data, err := encode(values)
		if err != nil {
			t.Fatal(err)
		}
		if got := decode(data, types); !reflect.DeepEqual(got, values) {
			t.Errorf("%#v became %#v", values, got)
		}
		for cut := range data {
			if got := decode(data[:cut], types); len(got) != len(types) {
				t.Errorf("%d arguments from %d bytes, of %d", len(got), cut, len(types))
			}
		}
	}
	if _, err := encode([]any{strings.Repeat("x", math.MaxUint16+1), "last"}); err == nil {
		t.Error("a string that is longer than its length says is encoded")
	}
}
