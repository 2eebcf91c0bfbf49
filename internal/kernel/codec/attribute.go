package codec

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const Nested = unix.NLA_F_NESTED

// Attributes is a buffer of netlink attributes in the byte order of nf_tables:
// lengths and types in host order, numbers in network order.
type Attributes []byte

// appendBytes appends an attribute, padded to four bytes.
func (a *Attributes) appendBytes(typ uint16, data []byte) {
	a.appendHeader(typ, len(data))
	*a = append(*a, data...)
	a.padToWord()
}

func (a *Attributes) Uint32(typ uint16, v uint32) {
	a.appendHeader(typ, 4)
	*a = binary.BigEndian.AppendUint32(*a, v)
}

// Text appends a text with the final NUL that the kernel expects.
func (a *Attributes) Text(typ uint16, s string) {
	a.appendHeader(typ, len(s)+1)
	*a = append(*a, s...)
	*a = append(*a, 0)
	a.padToWord()
}

// Nest starts a nested attribute and returns a function that ends it.
func (a *Attributes) Nest(typ uint16) (end func()) {
	start := a.Start(typ | Nested)
	return func() { a.End(start) }
}

// Start starts an attribute whose length is known at its end only, and returns
// its offset.
func (a *Attributes) Start(typ uint16) (offset int) {
	offset = len(*a)
	a.appendHeader(typ, 0)
	return offset
}

func (a *Attributes) End(offset int) {
	binary.NativeEndian.PutUint16((*a)[offset:], uint16(len(*a)-offset))
	a.padToWord()
}

func (a *Attributes) appendHeader(typ uint16, length int) {
	*a = binary.NativeEndian.AppendUint16(*a, uint16(unix.SizeofNlAttr+length))
	*a = binary.NativeEndian.AppendUint16(*a, typ)
}

func (a *Attributes) padToWord() {
	for len(*a)%4 != 0 {
		*a = append(*a, 0)
	}
}

// userdata is the type-length-value format in which nft keeps notes about sets
// and elements; the kernel stores it unread.
type userdata []byte

func (u *userdata) appendBytes(typ uint8, data []byte) {
	*u = append(*u, typ, uint8(len(data)))
	*u = append(*u, data...)
}

func (u *userdata) appendUint32(typ uint8, v uint32) {
	u.appendBytes(typ, binary.NativeEndian.AppendUint32(nil, v))
}

func (u *userdata) string(typ uint8, s string) {
	*u = append(*u, typ, uint8(len(s)+1))
	*u = append(*u, s...)
	*u = append(*u, 0)
}

func (u userdata) lookup(typ uint8) ([]byte, bool) {
	for len(u) >= 2 {
		n := int(u[1])
		if len(u) < 2+n {
			break
		}
		if u[0] == typ {
			return u[2 : 2+n], true
		}
		u = u[2+n:]
	}
	return nil, false
}
