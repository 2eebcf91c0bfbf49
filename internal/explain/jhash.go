package explain

import (
	"encoding/binary"
	"math/bits"
)

// jhash is Bob Jenkins's lookup3 as the kernel computes it (jhash() of
// linux/jhash.h) on little-endian machines. TestSourceHash compares it with
// the kernel's choice.
func jhash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	for len(key) > 12 {
		a += binary.LittleEndian.Uint32(key)
		b += binary.LittleEndian.Uint32(key[4:])
		c += binary.LittleEndian.Uint32(key[8:])
		a, b, c = jhashMix(a, b, c)
		key = key[12:]
	}
	if len(key) == 0 {
		return c
	}
	var rest [12]byte
	copy(rest[:], key)
	a += binary.LittleEndian.Uint32(rest[:])
	b += binary.LittleEndian.Uint32(rest[4:])
	c += binary.LittleEndian.Uint32(rest[8:])
	return jhashFinal(a, b, c)
}

func jhashMix(a, b, c uint32) (uint32, uint32, uint32) {
	for _, n := range [...]int{4, 6, 8, 16, 19, 4} {
		a, b, c = b, c+b, (a-c)^bits.RotateLeft32(c, n)
	}
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	for _, n := range [...]int{14, 11, 25, 16, 4, 14, 24} {
		a, b, c = b, (c^b)-bits.RotateLeft32(b, n), a
	}
	return b
}

// scale maps a hash to one of n numbers (reciprocal_scale() of linux/kernel.h).
func scale(hash, n uint32) uint32 {
	return uint32(uint64(hash) * uint64(n) >> 32)
}
