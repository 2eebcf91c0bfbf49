package codec

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Element is an element as the kernel has it. An interval set has elements for
// starts and ends, see joinIntervals.
type Element struct {
	nft.Element
	last        nft.Key // of an interval of concatenations
	keyed       bool
	IntervalEnd bool
	Packets     uint64 // of its counter
}

// IsForeign reports whether an element has no key that we could have written. One
// without any key matches what no other one does (since kernel 5.13).
func (e *Element) IsForeign() bool { return !e.keyed }

// ElementDecoder reads the elements of one set. There can be hundreds of thousands
// of them, so it allocates only what the elements need.
type ElementDecoder struct {
	Set      *nft.Set
	family   model.Family
	chains   map[string]string // names in verdicts, each once
	Expected *nft.Element      // may have the comment of the next element; nil: none
	current  Element
}

func NewElementDecoder(s *nft.Set, f model.Family) *ElementDecoder {
	return &ElementDecoder{Set: s, family: f, chains: make(map[string]string)}
}

// Message calls each for the elements in a message until it returns an error. The
// element is valid during the call only.
func (d *ElementDecoder) Message(data []byte, each func(*Element) error) (err error) {
	a := netlinkio.ReadMessage(data, &err)
	for a.Next() {
		if a.Type != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		list := a.Nested()
		for list.Next() {
			d.current = Element{}
			d.decodeElement(list.Nested(), &d.current)
			if err == nil {
				err = each(&d.current)
			}
		}
	}
	return err
}

func (d *ElementDecoder) decodeElement(a netlinkio.Attributes, e *Element) {
	for a.Next() {
		switch a.Type {
		case unix.NFTA_SET_ELEM_KEY:
			e.keyed = d.decodeKey(a.Nested(), &e.Key)
		case elementKeyEnd:
			d.decodeKey(a.Nested(), &e.last)
		case unix.NFTA_SET_ELEM_DATA:
			d.decodeValue(a.Nested(), &e.Value)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.IntervalEnd = a.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_EXPR:
			switch {
			case d.Set.Counters:
				e.decodeCounter(a.Nested())
			case d.Set.Limits != nft.NoLimits:
				e.Value = decodeLimit(a.Nested(), d.Set.Limits)
			}
		case elementExpressions:
			e.decodeExpressions(a.Nested())
		case unix.NFTA_SET_ELEM_USERDATA:
			if text, ok := userdata(a.Data).lookup(udataElemComment); ok && len(text) > 0 {
				e.Comment = d.shareComment(text[:len(text)-1]) // without the NUL
			}
		}
	}
}

func (d *ElementDecoder) decodeKey(a netlinkio.Attributes, k *nft.Key) (ours bool) {
	for a.Next() {
		var err error
		*k, err = parseKey(a.Data, d.Set.Key, d.family)
		if ours = err != errForeignKey; ours {
			a.Fail(err)
		}
	}
	return ours
}

func (d *ElementDecoder) decodeValue(a netlinkio.Attributes, v *nft.Value) {
	for a.Next() {
		switch a.Type {
		case unix.NFTA_DATA_VALUE:
			a.Fail(d.decodeData(a.Data, v))
		case unix.NFTA_DATA_VERDICT:
			v.Verdict = d.decodeVerdict(a.Nested())
		}
	}
}

func (d *ElementDecoder) decodeData(b []byte, v *nft.Value) (err error) {
	if !slices.Equal(d.Set.Data, classes) {
		v.Endpoint, err = parseEndpoint(b, d.Set, d.family)
		return err
	}
	if len(b) != 4 {
		return fmt.Errorf("parse class: %d bytes instead of 4", len(b))
	}
	v.Class = nft.Class(binary.NativeEndian.Uint32(b))
	return nil
}

var classes = []nft.Datatype{nft.ClassID}

func (d *ElementDecoder) decodeVerdict(a netlinkio.Attributes) (v nft.Verdict) {
	for a.Next() {
		switch a.Type {
		case unix.NFTA_VERDICT_CODE:
			v.Action = actionOf(int32(a.Uint32()))
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = d.shareChain(a.Text())
		}
	}
	return v
}

func (d *ElementDecoder) shareComment(text []byte) string {
	if d.Expected != nil && string(text) == d.Expected.Comment {
		return d.Expected.Comment
	}
	return string(text)
}

func (d *ElementDecoder) shareChain(name []byte) string {
	known, ok := d.chains[string(name)]
	if !ok {
		known = string(name)
		d.chains[known] = known
	}
	return known
}

func (e *Element) decodeExpressions(list netlinkio.Attributes) {
	for list.Next() {
		x := list.Nested()
		if ExpressionName(x) == counterExpression {
			e.decodeCounter(list.Nested())
		}
	}
}

func (e *Element) decodeCounter(a netlinkio.Attributes) {
	for a.Next() {
		if a.Type != unix.NFTA_EXPR_DATA {
			continue
		}
		counter := a.Nested()
		for counter.Next() {
			if counter.Type == unix.NFTA_COUNTER_PACKETS && len(counter.Data) == 8 {
				e.Packets = binary.BigEndian.Uint64(counter.Data)
			}
		}
	}
}
