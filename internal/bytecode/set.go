package bytecode

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Numbers from linux/netfilter/nf_tables.h.
const (
	setConcat       = 0x80 // NFT_SET_CONCAT
	setDescConcat   = 2    // NFTA_SET_DESC_CONCAT
	setFieldLength  = 1    // NFTA_SET_FIELD_LEN
	setExpression   = 17   // NFTA_SET_EXPR
	elementKeyEnd   = 10   // NFTA_SET_ELEM_KEY_END
	elementExprs    = 11   // NFTA_SET_ELEM_EXPRESSIONS
	elementCatchAll = 0x2  // NFT_SET_ELEM_CATCHALL
)

type set struct {
	name                  string
	flags                 uint32
	dataType              uint32
	keyLength, dataLength int
	hasExpression         bool                // of each element, such as a counter
	born                  int                 // the number of the change that has added it
	fields                []int               // lengths of concatenated fields, in bytes
	all                   map[string]*element // by the key, with its end and whether it ends an interval
	// Of intervals, after link: single fields by their start, and concatenations by the bytes
	// that no interval of the set spans.
	starts  []*element
	groups  map[string][]*element
	prefix  int
	catches *element
}

type element struct {
	key, last    []byte // last: of an interval of concatenations
	data         []byte
	verdict      verdict
	ends         bool // an interval
	over         []op // limits
	isCatchAll   bool
	isReferenced bool // to an object, which is not understood
}

func (s *set) is(flag uint32) bool { return s.flags&flag != 0 }

func (c *change) addSet(t *table) (err error) {
	s := &set{dataType: c.number(unix.NFTA_SET_DATA_TYPE), name: c.text(unix.NFTA_SET_NAME), flags: c.number(unix.NFTA_SET_FLAGS), keyLength: int(c.number(unix.NFTA_SET_KEY_LEN)), dataLength: int(c.number(unix.NFTA_SET_DATA_LEN)), all: make(map[string]*element)}
	s.hasExpression, s.born = c.has(setExpression), c.ruleset.changes
	if known := t.sets[s.name]; known != nil {
		if known.flags != s.flags || known.keyLength != s.keyLength || known.dataLength != s.dataLength || known.dataType != s.dataType || known.hasExpression != s.hasExpression {
			return fmt.Errorf("there is another set %q", s.name)
		}
		return nil
	}
	if s.is(unix.NFT_SET_ANONYMOUS) && !strings.HasPrefix(s.name, "__") {
		return fmt.Errorf("set %q has the flag of an anonymous one", s.name)
	}
	t.sets[s.name] = s
	a := netlinkio.Read(c.attributes[unix.NFTA_SET_DESC].Data, &err)
	for a.Next() {
		if a.Type != setDescConcat {
			continue
		}
		for list := a.Nested(); list.Next(); {
			if list.Type != unix.NFTA_LIST_ELEM {
				list.Fail(fmt.Errorf("a field of set %q is no element of a list", s.name))
			}
			for field := list.Nested(); field.Next(); {
				if field.Type == setFieldLength {
					s.fields = append(s.fields, int(field.Uint32()))
				}
			}
		}
	}
	if s.is(setConcat) && s.fields == nil {
		a.Fail(fmt.Errorf("set %q has intervals of fields without a length", s.name))
	}
	return err
}

func (c *change) changeElements(t *table, typ uint16) (err error) {
	add := typ == unix.NFT_MSG_NEWSETELEM
	s := t.sets[c.text(unix.NFTA_SET_ELEM_LIST_SET)]
	if s == nil {
		return fmt.Errorf("there is no set %q", c.text(unix.NFTA_SET_ELEM_LIST_SET))
	}
	a := netlinkio.Read(c.attributes[unix.NFTA_SET_ELEM_LIST_ELEMENTS].Data, &err)
	for a.Next() {
		e, elementErr := readElement(a.Data)
		a.Fail(elementErr)
		if add && e.verdict.given != (s.is(unix.NFT_SET_MAP) && s.dataType == unix.NFT_DATA_VERDICT) && !e.ends {
			a.Fail(fmt.Errorf("an element of set %q has data of another type", s.name))
		}
		k := string(e.key) + string(e.last)
		if e.ends {
			k += "end"
		}
		switch known := s.all[k]; {
		case known == nil && typ == unix.NFT_MSG_DELSETELEM:
			a.Fail(fmt.Errorf("set %q does not have an element that is to be deleted", s.name))
		case add && known != nil && (!bytes.Equal(known.data, e.data) || known.verdict.code != e.verdict.code || known.verdict.chain != e.verdict.chain):
			a.Fail(fmt.Errorf("set %q has an element with other data", s.name))
		case add:
			s.all[k] = e
		default:
			delete(s.all, k)
		}
	}
	return err
}

func readElement(data []byte) (e *element, err error) {
	e = &element{}
	a := netlinkio.Read(data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_SET_ELEM_KEY:
			e.key, _ = readData(a.Data, &err)
		case elementKeyEnd:
			e.last, _ = readData(a.Data, &err)
		case unix.NFTA_SET_ELEM_DATA:
			e.data, e.verdict = readData(a.Data, &err)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.ends = a.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0
			e.isCatchAll = a.Uint32()&elementCatchAll != 0
		case unix.NFTA_SET_ELEM_EXPR:
			o, exprErr := readExpression(a.Data)
			a.Fail(exprErr)
			e.over = append(e.over, o)
		case elementExprs:
			exprs, exprErr := readRule(a.Data)
			a.Fail(exprErr)
			e.over = append(e.over, exprs...)
		case unix.NFTA_SET_ELEM_OBJREF:
			e.isReferenced = true
		}
	}
	return e, err
}

func readData(data []byte, err *error) (value []byte, v verdict) {
	a := netlinkio.Read(data, err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_DATA_VALUE:
			value = bytes.Clone(a.Data)
		case unix.NFTA_DATA_VERDICT:
			all := collect(a.Nested())
			v.code, v.given, v.chain = int32(all.number(unix.NFTA_VERDICT_CODE)), all.has(unix.NFTA_VERDICT_CODE), all.text(unix.NFTA_VERDICT_CHAIN)
		}
	}
	return value, v
}

// link gives elements the chains that they name, and puts intervals into their order.
func (s *set) link(t *table) {
	s.starts, s.groups, s.catches = nil, nil, nil
	var spans []*element
	for _, e := range s.all {
		e.verdict.to = t.chains[e.verdict.chain]
		switch {
		case e.isCatchAll:
			s.catches = e
		case s.is(setConcat):
			if e.last == nil {
				e.last = e.key
			}
			spans = append(spans, e)
		case s.is(unix.NFT_SET_INTERVAL):
			s.starts = append(s.starts, e)
		}
	}
	slices.SortFunc(s.starts, func(a, b *element) int {
		if c := bytes.Compare(a.key, b.key); c != 0 || a.ends == b.ends {
			return c
		} else if a.ends { // where the next begins
			return -1
		}
		return 1
	})
	if spans == nil {
		return
	}
	s.prefix = len(spans[0].key)
	for _, e := range spans {
		for s.prefix > 0 && !bytes.Equal(e.key[:s.prefix], e.last[:s.prefix]) {
			s.prefix -= 4
		}
	}
	s.groups = make(map[string][]*element)
	for _, e := range spans {
		k := string(e.key[:s.prefix])
		s.groups[k] = append(s.groups[k], e)
	}
}

// find returns the element for a key, which begins the bytes, or nil.
func (s *set) find(key []byte) *element {
	if e := s.findSpecific(key); e != nil {
		return e
	}
	return s.catches
}

func (s *set) findSpecific(key []byte) *element {
	switch {
	case s.is(setConcat):
		return s.findSpan(key)
	case s.is(unix.NFT_SET_INTERVAL):
		if len(s.starts) == 0 {
			return nil
		}
		key = key[:len(s.starts[0].key)]
		i := sort.Search(len(s.starts), func(i int) bool { return bytes.Compare(s.starts[i].key, key) > 0 })
		if i == 0 || s.starts[i-1].ends {
			return nil
		}
		return s.starts[i-1]
	}
	return s.all[string(key[:s.keyLength])]
}

func (s *set) findSpan(key []byte) *element {
	if len(s.groups) == 0 {
		return nil
	}
	for _, e := range s.groups[string(key[:s.prefix])] {
		if s.spans(e, key) {
			return e
		}
	}
	return nil
}

// spans reports whether the fields of a key are in those of an element. Each is a number in the
// order of the network, in registers of its own.
func (s *set) spans(e *element, key []byte) bool {
	at := 0
	for _, length := range s.fields {
		end := at + length
		if bytes.Compare(key[at:end], e.key[at:end]) < 0 || bytes.Compare(key[at:end], e.last[at:end]) > 0 {
			return false
		}
		at = (end + 3) &^ 3
	}
	return true
}
