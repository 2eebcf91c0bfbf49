package render

import (
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestUsedOptions: the options in use have one order. A change compares those before and
// after it, and where they differ it compares all chains.
func TestUsedOptions(t *testing.T) {
	used := newTable(model.IPv4, model.Observe{})
	shapes := []nft.Shape{nft.OfPort, nft.OfRange}
	for _, shape := range shapes {
		used.options[option{kind: allowing, shape: shape}] = 1
		for _, bits := range []uint8{8, 24, 32} {
			used.options[option{kind: allowedLength, shape: shape, bits: bits}] = 1
		}
	}
	for _, shape := range shapes {
		used.options[option{kind: limiting, shape: shape, limit: model.LimitRate}] = 1
		used.options[option{kind: limiting, shape: shape, limit: model.LimitClientConnections}] = 1
	}
	want := used.usedOptions()
	for range 20 {
		if got := used.usedOptions(); !slices.Equal(got, want) {
			t.Fatalf("%v\nthen %v", want, got)
		}
	}
}
