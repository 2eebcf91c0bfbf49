package render

import (
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestUsedOptions: the options in use have one order. A change compares those before and
// after it, and where they differ it compares all chains.
func TestUsedOptions(t *testing.T) {
	used := newTable()
	for _, ranged := range []bool{false, true} {
		used.options[option{kind: allowing, length: lengthOf{ranged: ranged}}] = 1
		for _, bits := range []uint8{8, 24, 32} {
			used.options[option{kind: allowedLength, length: lengthOf{bits, ranged}}] = 1
		}
	}
	for _, kind := range []optionKind{limiting, limitingRanges} {
		used.options[option{kind: kind, limit: model.LimitRate}] = 1
		used.options[option{kind: kind, limit: model.LimitClientConnections}] = 1
	}
	want := used.used()
	for range 20 {
		if got := used.used(); !slices.Equal(got, want) {
			t.Fatalf("%v\nthen %v", want, got)
		}
	}
}
