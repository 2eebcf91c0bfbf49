package netlinkio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// HeaderLength is the length of the header of every netfilter message
// (struct nfgenmsg of linux/netfilter/nfnetlink.h).
const HeaderLength = 4

// Attributes iterates over netlink attributes without copying or allocating, because
// dumps have millions of them. The first error ends the list, and those around it.
type Attributes struct {
	Type uint16 // of the current attribute, without flags
	Data []byte // its payload
	rest []byte
	err  *error
}

// Read returns the attributes in b. It sets err if they are malformed.
func Read(b []byte, err *error) Attributes { return Attributes{rest: b, err: err} }

func ReadMessage(message []byte, err *error) Attributes {
	if len(message) < HeaderLength {
		*err = fmt.Errorf("decode message: %d bytes are too short", len(message))
		return Attributes{err: err}
	}
	return Read(message[HeaderLength:], err)
}

var errLength = errors.New("decode attribute: its length is wrong")

func (a *Attributes) Next() bool {
	if len(a.rest) == 0 || *a.err != nil {
		return false
	}
	length := 0
	if len(a.rest) >= unix.SizeofNlAttr {
		length = int(binary.NativeEndian.Uint16(a.rest))
	}
	if length < unix.SizeofNlAttr || length > len(a.rest) {
		*a.err = errLength
		return false
	}
	a.Type = binary.NativeEndian.Uint16(a.rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.Data = a.rest[unix.SizeofNlAttr:length]
	a.rest = a.rest[min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(a.rest)):]
	return true
}

// Nested returns the attributes in the current one.
func (a *Attributes) Nested() Attributes { return Attributes{rest: a.Data, err: a.err} }

// Fail ends the list with an error, unless it is nil.
func (a *Attributes) Fail(err error) {
	if err != nil && *a.err == nil {
		*a.err = err
	}
}

// Uint64 returns the current attribute as a number in network byte order.
func (a *Attributes) Uint64() uint64 {
	if len(a.Data) != 8 {
		a.Fail(errLength)
		return 0
	}
	return binary.BigEndian.Uint64(a.Data)
}

// Uint32 is Uint64 for shorter numbers.
func (a *Attributes) Uint32() uint32 {
	if len(a.Data) != 4 {
		a.Fail(errLength)
		return 0
	}
	return binary.BigEndian.Uint32(a.Data)
}

// Uint16 is Uint32 for still shorter numbers.
func (a *Attributes) Uint16() uint16 {
	if len(a.Data) != 2 {
		a.Fail(errLength)
		return 0
	}
	return binary.BigEndian.Uint16(a.Data)
}

// Text returns the current attribute up to its NUL.
func (a *Attributes) Text() []byte {
	text, _, _ := bytes.Cut(a.Data, []byte{0})
	return text
}
