package placement

// Hasher hashes the parts of a name. The hash differs between ("ab", "c") and
// ("a", "bc"), and is the same on every machine and in every release: lanes and slots
// must not move during an upgrade.
type Hasher uint64

// FNV-1a with 64 bits.
const (
	fnvOffset Hasher = 0xcbf29ce484222325
	fnvPrime  Hasher = 0x100000001b3
)

func NewHash(parts ...string) Hasher {
	h := fnvOffset
	for _, s := range parts {
		h = Add(h, s)
	}
	return h
}

func Add[T string | []byte](h Hasher, part T) Hasher {
	for shift := 24; shift >= 0; shift -= 8 {
		h = (h ^ Hasher(byte(len(part)>>shift))) * fnvPrime
	}
	for i := range len(part) {
		h = (h ^ Hasher(part[i])) * fnvPrime
	}
	return h
}

// MixedSum returns the hash. The low bits of FNV depend only on the low bits of the text,
// so similar names would share a lane: mix in the high bits.
func (h Hasher) MixedSum() uint64 {
	sum := uint64(h)
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	return sum ^ sum>>33
}
