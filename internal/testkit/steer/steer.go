// Package steer turns fuzz input into a rand.Source, so that randomized tests
// can be driven by a fuzzer.
package steer

import (
	"math/rand/v2"
	"testing"
)

// Bytes is a source of numbers for [rand.New]. Each number is one byte: IntN of
// a small n is spread evenly over the values of the byte, so that the fuzzer
// meets all of them and changing one byte changes one decision. When the bytes
// are used up, all further ones are zero.
type Bytes struct{ rest []byte }

// New returns a generator driven by the bytes, and the source behind it.
func New(data []byte) (*rand.Rand, *Bytes) {
	b := &Bytes{data}
	return rand.New(b), b
}

// Left returns the number of decisions that are left.
func (b *Bytes) Left() int { return len(b.rest) }

// Uint64 implements [rand.Source]. The byte is at both ends, because IntN takes
// the lowest bits for a power of two and the highest for other numbers. The bit
// between them keeps IntN from retrying forever when it rejects a zero.
func (b *Bytes) Uint64() uint64 {
	next := uint64(0)
	if len(b.rest) > 0 {
		next, b.rest = uint64(b.rest[0]), b.rest[1:]
	}
	return next<<56 | 1<<55 | next
}

// Seed adds bytes to a fuzz target, one entry of the corpus for each length: the
// same ones in each run.
func Seed(f *testing.F, lengths ...int) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range lengths {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
}
