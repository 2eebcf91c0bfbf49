package netlinkio_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// attribute returns one with a length that may be wrong, without padding.
func attribute(length int, typ uint16, data ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(length))
	return append(binary.NativeEndian.AppendUint16(b, typ), data...)
}

// TestAttributes reads lists up to the first malformed attribute.
func TestAttributes(t *testing.T) {
	const nested = 1 << 15
	number := attribute(8, 3, 0, 0, 1, 2)
	for name, c := range map[string]struct {
		list  []byte
		want  string
		fails bool
	}{
		"nothing":           {nil, "", false},
		"padding":           {append(attribute(5, 1, 'a', 0, 0, 0), number...), "1:61 3:258 ", false},
		"last not padded":   {attribute(7, 1, 'a', 'b', 0), "1:616200 ", false},
		"nested":            {append(attribute(12, 2|nested, number...), number...), "2:( 3:258 ) 3:258 ", false},
		"no room for one":   {append(slices.Clone(number), 8, 0), "3:258 ", true},
		"too long":          {attribute(9, 1, 0, 0, 0, 0), "", true},
		"too short":         {attribute(3, 1), "", true},
		"not a number":      {append(attribute(6, 3, 1, 2, 0, 0), number...), "3:0 ", true},
		"nested is broken":  {append(attribute(12, 2|nested, attribute(99, 1, 0, 0, 0, 0)...), number...), "2:( ) ", true},
		"nested no number":  {append(attribute(12, 2|nested, attribute(7, 3, 1, 2, 3, 0)...), number...), "2:( 3:0 ) ", true},
		"text without end":  {attribute(8, 4, 'n', 'a', 'm', 'e'), "4:name ", false},
		"text with its end": {attribute(8, 4, 'n', 'a', 0, 'e'), "4:na ", false},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := describe(netlinkio.ReadMessage(append(make([]byte, netlinkio.HeaderLength), c.list...), &err))
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%q, %v; want %q, failure %t", got, err, c.want, c.fails)
			}
		})
	}
	var err error
	if a := netlinkio.ReadMessage([]byte{1, 2, 3}, &err); a.Next() || err == nil {
		t.Error("a message without a header is accepted")
	}
}

func describe(a netlinkio.Attributes) (text string) {
	for a.Next() {
		switch text += fmt.Sprintf("%d:", a.Type); a.Type {
		case 1:
			text += fmt.Sprintf("%x ", a.Data)
		case 2:
			text += "( " + describe(a.Nested()) + ") "
		case 3:
			text += fmt.Sprintf("%d ", a.Uint32())
		case 4:
			text += string(a.Text()) + " "
		}
	}
	return text
}
