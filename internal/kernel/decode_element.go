package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// element is an element as the kernel has it. Those of an interval set come as
// starts and ends, see joinIntervals.
type element struct {
	nft.Element
	last        nft.Key // of an interval of concatenations
	intervalEnd bool
	packets     uint64 // that found it, if it has a counter
}

// isCatchAll tells whether an element has no key: it stands for all that are not
// there (since kernel 5.13). We write none.
func (e *element) isCatchAll() bool { return !e.Key.Address.IsValid() }

// elementDecoder reads the elements of one set. There can be hundreds of
// thousands of them: what it allocates is what the elements need.
type elementDecoder struct {
	set    *nft.Set
	family model.Family
	chains map[string]string // names in verdicts, each once
}

func newElementDecoder(s *nft.Set, f model.Family) *elementDecoder {
	return &elementDecoder{s, f, make(map[string]string)}
}

// message calls each for the elements in a message, until it returns an error. The
// element is valid during the call only.
func (d *elementDecoder) message(m netlink.Message, each func(*element) error) error {
	if len(m.Data) < Nfgenmsg {
		return fmt.Errorf("decode message: %d bytes are too short", len(m.Data))
	}
	r := reader{rest: m.Data[Nfgenmsg:]}
	for r.next() {
		if r.typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		list := reader{rest: r.data}
		for list.next() {
			var e element
			if err := d.element(list.data, &e); err != nil {
				return err
			}
			if err := each(&e); err != nil {
				return err
			}
		}
		if list.err != nil {
			return list.err
		}
	}
	return r.err
}

func (d *elementDecoder) element(data []byte, e *element) (err error) {
	r := reader{rest: data}
	for err == nil && r.next() {
		switch r.typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key, err = d.key(r.data)
		case elementKeyEnd:
			e.last, err = d.key(r.data)
		case unix.NFTA_SET_ELEM_DATA:
			err = d.value(r.data, &e.Value)
		case unix.NFTA_SET_ELEM_FLAGS:
			var flags uint32
			flags, err = r.uint32()
			e.intervalEnd = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_EXPR:
			if d.set.Counters {
				err = e.decodeCounter(r.data)
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			if text, ok := userdata(r.data).lookup(udataElemComment); ok && len(text) > 0 {
				e.Comment = string(text[:len(text)-1]) // without the NUL
			}
		}
	}
	return errors.Join(err, r.err)
}

func (d *elementDecoder) key(data []byte) (k nft.Key, err error) {
	r := reader{rest: data}
	for err == nil && r.next() {
		k, err = parseKey(r.data, d.set.Key, d.family)
	}
	return k, errors.Join(err, r.err)
}

func (d *elementDecoder) value(data []byte, v *nft.Value) (err error) {
	r := reader{rest: data}
	for err == nil && r.next() {
		switch r.typ {
		case unix.NFTA_DATA_VALUE:
			v.Endpoint, err = parseEndpoint(r.data, d.family)
		case unix.NFTA_DATA_VERDICT:
			v.Verdict, err = d.verdict(r.data)
		}
	}
	return errors.Join(err, r.err)
}

func (d *elementDecoder) verdict(data []byte) (v nft.Verdict, err error) {
	r := reader{rest: data}
	for err == nil && r.next() {
		switch r.typ {
		case unix.NFTA_VERDICT_CODE:
			var code uint32
			code, err = r.uint32()
			v.Action = actionOf(int32(code))
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = d.chain(r.string())
		}
	}
	return v, errors.Join(err, r.err)
}

func (d *elementDecoder) chain(name []byte) string {
	known, ok := d.chains[string(name)]
	if !ok {
		known = string(name)
		d.chains[known] = known
	}
	return known
}

// reader goes through netlink attributes without allocating. It is for the
// elements of sets; what is rare is read by netlink.AttributeDecoder.
type reader struct {
	rest []byte
	typ  uint16 // of the present attribute, without flags
	data []byte // its payload
	err  error
}

var errAttribute = errors.New("decode attribute: its length is wrong")

// next goes to the next attribute, if there is one.
func (r *reader) next() bool {
	if len(r.rest) == 0 {
		return false
	}
	if len(r.rest) < attrHeader {
		r.err = errAttribute
		return false
	}
	length := int(binary.NativeEndian.Uint16(r.rest))
	if length < attrHeader || length > len(r.rest) {
		r.err = errAttribute
		return false
	}
	r.typ = binary.NativeEndian.Uint16(r.rest[2:]) & attrTypeMask
	r.data = r.rest[attrHeader:length]
	r.rest = r.rest[min((length+3)&^3, len(r.rest)):]
	return true
}

func (r *reader) uint32() (uint32, error) {
	if len(r.data) != 4 {
		return 0, errAttribute
	}
	return binary.BigEndian.Uint32(r.data), nil
}

// string returns the text up to its NUL.
func (r *reader) string() []byte {
	for i, c := range r.data {
		if c == 0 {
			return r.data[:i]
		}
	}
	return r.data
}
