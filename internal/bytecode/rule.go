package bytecode

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

type kind uint8

const (
	opNothing kind = iota // for a first packet: counters, logs, flow tables
	opUnknown
	opLoad    // a field into a register
	opStore   // a register into a field
	opCompare // ends the rule unless a register has a value
	opRange
	opBitwise
	opByteOrder
	opLookup
	opImmediate
	opVerdict
	opTranslate
	opMasquerade
	opRedirect
	opReject
	opAddressType
	opChoose // a number of some, by a counter, at random or by a hash
	opOver   // matches packets that exceed a limit
	opWithin // matches packets that do not
	opDynset
)

// op is an expression of the kernel. Registers are offsets in bytes.
type op struct {
	kind        kind
	name        string // of the expression, for messages
	source      field
	from, to    uint8 // registers; of NAT address and port
	hasFrom     bool
	length      int
	offset      int
	operator    uint32 // of a comparison, or of a change of a set
	flags       uint32
	data, other []byte // compared values, masks
	modulus     uint32
	first       uint32 // of the numbers
	chooser     Chooser
	timeout     uint64 // in milliseconds
	verdict     verdict
	setName     string
	set         *set
	hasTo       bool
	isVerdict   bool // what a lookup finds
	limits      []op
	isTCPReset  bool
	isSourceNAT bool
}

type field struct {
	place  place
	number uint32 // the key, or the base of a header
	reply  bool   // direction
}

type place uint8

const (
	inPacket place = iota
	inMeta
	inConnection
)

type verdict struct {
	code  int32
	given bool
	chain string
	to    *chain
}

// The codes of verdicts that packets end with, and those of linux/netfilter/nf_tables.h.
const (
	codeDrop     = 0
	codeAccept   = 1
	codeContinue = -1
	codeBreak    = -2
	codeJump     = -3
	codeGoto     = -4
	codeReturn   = -5
)

func readRule(data []byte) (rule []op, err error) {
	a := netlinkio.Read(data, &err)
	for a.Next() {
		o, exprErr := readExpression(a.Data)
		a.Fail(exprErr)
		rule = append(rule, o)
	}
	return rule, err
}

// attributes are those of an expression or a message, by type.
type attributes map[uint16]netlinkio.Attributes

func collect(a netlinkio.Attributes) attributes {
	all := attributes{}
	for a.Next() {
		all[a.Type] = a
	}
	return all
}

// number returns a number; zero: it is not given.
func (all attributes) number(typ uint16) uint32 {
	a, ok := all[typ]
	if !ok {
		return 0
	}
	return a.Uint32()
}

func (all attributes) has(typ uint16) bool { _, ok := all[typ]; return ok }

// register returns the offset of a register in bytes.
func (all attributes) register(typ uint16) uint8 {
	r := all.number(typ)
	switch {
	case r >= unix.NFT_REG32_00:
		return uint8(r-unix.NFT_REG32_00) * 4
	case r > 0:
		return uint8(r-unix.NFT_REG_1) * 16
	}
	return 0
}

func (all attributes) value(typ uint16, err *error) []byte {
	value, _ := readData(all[typ].Data, err)
	return value
}

func readExpression(data []byte) (o op, err error) {
	outer := collect(netlinkio.Read(data, &err))
	o.name = outer.text(unix.NFTA_EXPR_NAME)
	var all attributes
	if o.name != "match" && o.name != "target" { // theirs are of x_tables
		all = collect(netlinkio.Read(outer[unix.NFTA_EXPR_DATA].Data, &err))
	}
	if err == nil {
		err = o.read(all)
	}
	if err != nil {
		return o, fmt.Errorf("read expression %s: %w", o.name, err)
	}
	return o, nil
}

func (o *op) read(all attributes) (err error) {
	switch o.name {
	case "counter", "log", "flow_offload", "last":
		o.kind = opNothing
	case "immediate":
		o.kind, o.to = opImmediate, all.register(unix.NFTA_IMMEDIATE_DREG)
		if o.data, o.verdict = readData(all[unix.NFTA_IMMEDIATE_DATA].Data, &err); o.verdict.given {
			o.kind = opVerdict
		}
	case "cmp":
		o.kind, o.from, o.operator = opCompare, all.register(unix.NFTA_CMP_SREG), all.number(unix.NFTA_CMP_OP)
		o.data = all.value(unix.NFTA_CMP_DATA, &err)
	case "range":
		o.kind, o.from, o.operator = opRange, all.register(unix.NFTA_RANGE_SREG), all.number(unix.NFTA_RANGE_OP)
		o.data, o.other = all.value(unix.NFTA_RANGE_FROM_DATA, &err), all.value(unix.NFTA_RANGE_TO_DATA, &err)
	case "payload", "meta", "ct":
		o.readLoad(all)
	case "bitwise":
		o.readBitwise(all, &err)
	case "byteorder":
		o.kind, o.from, o.to = opByteOrder, all.register(unix.NFTA_BYTEORDER_SREG), all.register(unix.NFTA_BYTEORDER_DREG)
		o.length, o.modulus = int(all.number(unix.NFTA_BYTEORDER_LEN)), all.number(unix.NFTA_BYTEORDER_SIZE)
	case "lookup":
		o.kind, o.from, o.setName = opLookup, all.register(unix.NFTA_LOOKUP_SREG), all.text(unix.NFTA_LOOKUP_SET)
		o.to, o.hasTo = all.register(unix.NFTA_LOOKUP_DREG), all.has(unix.NFTA_LOOKUP_DREG)
		o.flags, o.isVerdict = all.number(unix.NFTA_LOOKUP_FLAGS), o.hasTo && all.number(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT
	case "numgen":
		o.kind, o.to, o.modulus, o.first = opChoose, all.register(unix.NFTA_NG_DREG), all.number(unix.NFTA_NG_MODULUS), all.number(unix.NFTA_NG_OFFSET)
		if o.chooser.Kind = "counter"; all.number(unix.NFTA_NG_TYPE) == unix.NFT_NG_RANDOM {
			o.chooser.Kind = "random"
		}
	case "hash":
		o.kind, o.to, o.modulus, o.first = opChoose, all.register(unix.NFTA_HASH_DREG), all.number(unix.NFTA_HASH_MODULUS), all.number(unix.NFTA_HASH_OFFSET)
		o.chooser = Chooser{Kind: "jhash", Seed: all.number(unix.NFTA_HASH_SEED)}
		if o.from, o.length = all.register(unix.NFTA_HASH_SREG), int(all.number(unix.NFTA_HASH_LEN)); all.number(unix.NFTA_HASH_TYPE) != 0 {
			o.chooser.Kind = "symhash"
		}
	case "fib":
		o.kind, o.to, o.flags = opAddressType, all.register(unix.NFTA_FIB_DREG), all.number(unix.NFTA_FIB_FLAGS)
		if all.number(unix.NFTA_FIB_RESULT) != unix.NFT_FIB_RESULT_ADDRTYPE {
			o.kind, o.name = opUnknown, "fib, of an interface"
		}
	default:
		o.readAction(all, &err)
	}
	return err
}

func (all attributes) text(typ uint16) string {
	a := all[typ]
	return string(a.Text())
}

// readLoad reads an expression that loads a field, or stores one. The three have the register in
// the same attribute, except ct.
func (o *op) readLoad(all attributes) {
	o.kind = opLoad
	switch o.name {
	case "payload":
		o.to, o.source = all.register(unix.NFTA_PAYLOAD_DREG), field{inPacket, all.number(unix.NFTA_PAYLOAD_BASE), false}
		o.offset, o.length = int(all.number(unix.NFTA_PAYLOAD_OFFSET)), int(all.number(unix.NFTA_PAYLOAD_LEN))
		if all.has(unix.NFTA_PAYLOAD_SREG) {
			o.kind, o.name = opUnknown, "payload, which changes the packet"
		}
	case "meta":
		o.to, o.source = all.register(unix.NFTA_META_DREG), field{inMeta, all.number(unix.NFTA_META_KEY), false}
		if all.has(unix.NFTA_META_SREG) {
			o.kind, o.from = opStore, all.register(unix.NFTA_META_SREG)
		}
	case "ct":
		direction := all[unix.NFTA_CT_DIRECTION].Data
		o.to, o.source = all.register(unix.NFTA_CT_DREG), field{inConnection, all.number(unix.NFTA_CT_KEY), len(direction) == 1 && direction[0] == 1}
		if all.has(unix.NFTA_CT_SREG) {
			o.kind, o.from = opStore, all.register(unix.NFTA_CT_SREG)
		}
	}
}

// Attributes of bitwise from linux/netfilter/nf_tables.h that x/sys lacks.
const (
	bitwiseOp    = 6 // NFTA_BITWISE_OP
	bitwiseSREG2 = 8 // NFTA_BITWISE_SREG2
)

func (o *op) readBitwise(all attributes, err *error) {
	o.kind, o.from, o.to = opBitwise, all.register(unix.NFTA_BITWISE_SREG), all.register(unix.NFTA_BITWISE_DREG)
	o.data, o.other = all.value(unix.NFTA_BITWISE_MASK, err), all.value(unix.NFTA_BITWISE_XOR, err)
	if all.number(bitwiseOp) != 0 || all.has(bitwiseSREG2) || len(o.data) != len(o.other) {
		o.kind, o.name = opUnknown, "bitwise, with a shift or two registers"
	}
}

// Flags and types of expressions from linux/netfilter/nf_tables.h.
const (
	limitInvert     = 1 // NFT_LIMIT_F_INV
	connlimitFlags  = 2 // NFTA_CONNLIMIT_FLAGS
	dynsetExprs     = 10
	dynsetDelete    = 2 // NFT_DYNSET_OP_DELETE
	dynsetInvert    = 1 // NFT_DYNSET_F_INV
	lookupInvert    = 1 // NFT_LOOKUP_F_INV
	rejectTCPReset  = 1 // NFT_REJECT_TCP_RST
	natSource       = 0 // NFT_NAT_SNAT
	objectCounter   = 1 // NFT_OBJECT_COUNTER
	objectAttribute = 1 // NFTA_OBJREF_IMM_TYPE
)

func (o *op) readAction(all attributes, err *error) {
	switch o.name {
	case "nat":
		o.kind, o.isSourceNAT = opTranslate, all.number(unix.NFTA_NAT_TYPE) == natSource
		o.from, o.hasFrom = all.register(unix.NFTA_NAT_REG_ADDR_MIN), all.has(unix.NFTA_NAT_REG_ADDR_MIN)
		o.to, o.hasTo = all.register(unix.NFTA_NAT_REG_PROTO_MIN), all.has(unix.NFTA_NAT_REG_PROTO_MIN)
		o.checkRange(all, unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX)
		o.checkRange(all, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
	case "masq":
		o.kind = opMasquerade
	case "redir":
		o.kind, o.to, o.hasTo = opRedirect, all.register(unix.NFTA_REDIR_REG_PROTO_MIN), all.has(unix.NFTA_REDIR_REG_PROTO_MIN)
		o.checkRange(all, unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFTA_REDIR_REG_PROTO_MAX)
	case "reject":
		o.kind, o.isTCPReset = opReject, all.number(unix.NFTA_REJECT_TYPE) == rejectTCPReset
	case "limit":
		o.readLimit(all.number(unix.NFTA_LIMIT_FLAGS))
	case "connlimit":
		o.readLimit(all.number(connlimitFlags))
	case "objref":
		o.kind = opUnknown
		if all.number(objectAttribute) == objectCounter {
			o.kind = opNothing
		}
	case "dynset":
		o.readDynset(all, err)
	default:
		o.kind = opUnknown
	}
}

func (o *op) readLimit(flags uint32) {
	if o.kind = opWithin; flags&limitInvert != 0 {
		o.kind = opOver
	}
}

// checkRange notes that an expression chooses from a range, which is not understood.
func (o *op) checkRange(all attributes, first, last uint16) {
	if all.has(last) && all.register(first) != all.register(last) {
		o.kind, o.name = opUnknown, o.name+", to a range"
	}
}

func (o *op) readDynset(all attributes, err *error) {
	o.kind, o.setName, o.operator, o.flags = opDynset, all.text(unix.NFTA_DYNSET_SET_NAME), all.number(unix.NFTA_DYNSET_OP), all.number(unix.NFTA_DYNSET_FLAGS)
	o.from = all.register(unix.NFTA_DYNSET_SREG_KEY)
	o.to, o.hasTo = all.register(unix.NFTA_DYNSET_SREG_DATA), all.has(unix.NFTA_DYNSET_SREG_DATA)
	if t, ok := all[unix.NFTA_DYNSET_TIMEOUT]; ok {
		o.timeout = t.Uint64()
	}
	if e, ok := all[unix.NFTA_DYNSET_EXPR]; ok {
		limit, exprErr := readExpression(e.Data)
		o.limits, *err = append(o.limits, limit), exprErr
	}
	if list, ok := all[dynsetExprs]; ok {
		o.limits, *err = readRule(list.Data)
	}
}
