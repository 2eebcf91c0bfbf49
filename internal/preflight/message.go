package preflight

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"golang.org/x/sys/unix"
)

const tableName = "nftproxy-preflight"

// Numbers of linux/netfilter/nf_tables.h that the unix package lacks.
const (
	nftSetConcat    = 0x80       // NFT_SET_CONCAT
	setDescConcat   = 2          // NFTA_SET_DESC_CONCAT
	setFieldLength  = 1          // NFTA_SET_FIELD_LEN
	setExpression   = 17         // NFTA_SET_EXPR
	verdictData     = 0xffffff00 // NFT_DATA_VERDICT
	plainData       = 1          // any other type is the user's own
	netfilterAccept = 1          // NF_ACCEPT
)

// table makes the messages for a table of a family.
type table struct{ family model.Family }

// byFamily returns the one of two texts that belongs to the family.
func (t table) byFamily(v4, v6 string) string {
	if t.family == model.IPv6 {
		return v6
	}
	return v4
}

func (t table) number() byte {
	if t.family == model.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// width returns the bytes of an address.
func (t table) width() uint32 {
	if t.family == model.IPv6 {
		return 16
	}
	return 4
}

// address loads the destination address into the first register.
func (t table) address() expr.Any {
	offset := uint32(16)
	if t.family == model.IPv6 {
		offset = 24
	}
	return &expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: t.width()}
}

// create returns a request that asks for an answer in any case.
func (t table) create(typ uint16, attributes func(*netlink.AttributeEncoder)) netlink.Message {
	a := netlink.NewAttributeEncoder()
	a.ByteOrder = binary.BigEndian
	attributes(a)
	data, err := a.Encode()
	if err != nil {
		panic(fmt.Sprintf("encode message %d: %v", typ, err)) // too long: impossible
	}
	return netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ),
			Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Append,
		},
		Data: append([]byte{t.number(), unix.NFNETLINK_V0, 0, 0}, data...),
	}
}

func (t table) baseChain(name string, hook uint32, priority int32) netlink.Message {
	return t.create(unix.NFT_MSG_NEWCHAIN, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_CHAIN_TABLE, tableName)
		a.String(unix.NFTA_CHAIN_NAME, name)
		a.Nested(unix.NFTA_CHAIN_HOOK, func(a *netlink.AttributeEncoder) error {
			a.Uint32(unix.NFTA_HOOK_HOOKNUM, hook)
			a.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(priority))
			return nil
		})
		a.Uint32(unix.NFTA_CHAIN_POLICY, netfilterAccept)
		a.String(unix.NFTA_CHAIN_TYPE, "nat")
	})
}

func (t table) rule(exprs ...expr.Any) netlink.Message {
	return t.create(unix.NFT_MSG_NEWRULE, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_RULE_TABLE, tableName)
		a.String(unix.NFTA_RULE_CHAIN, chain)
		a.Nested(unix.NFTA_RULE_EXPRESSIONS, func(a *netlink.AttributeEncoder) error {
			for _, x := range exprs {
				a.Do(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, func() ([]byte, error) { return expr.Marshal(t.number(), x) })
			}
			return nil
		})
	})
}

// set is a set, or a map if it has data, which is as wide as an address.
type set struct {
	name     string
	key      []uint32 // bytes of each field
	flags    uint32
	dataType uint32
	counter  bool // in every element
}

func (t table) set(s set) netlink.Message {
	return t.create(unix.NFT_MSG_NEWSET, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_SET_TABLE, tableName)
		a.String(unix.NFTA_SET_NAME, s.name)
		a.Uint32(unix.NFTA_SET_ID, 1) // looked at in this batch alone, and by nobody
		a.Uint32(unix.NFTA_SET_FLAGS, s.flags)
		a.Uint32(unix.NFTA_SET_KEY_TYPE, plainData)
		a.Uint32(unix.NFTA_SET_KEY_LEN, s.keyLength())
		if s.dataType != 0 {
			a.Uint32(unix.NFTA_SET_DATA_TYPE, s.dataType)
			a.Uint32(unix.NFTA_SET_DATA_LEN, t.width())
		}
		if s.counter {
			a.Nested(setExpression, func(a *netlink.AttributeEncoder) error {
				a.String(unix.NFTA_EXPR_NAME, "counter")
				a.Nested(unix.NFTA_EXPR_DATA, func(*netlink.AttributeEncoder) error { return nil })
				return nil
			})
		}
		if s.flags&nftSetConcat != 0 {
			a.Nested(unix.NFTA_SET_DESC, s.describe)
		}
	})
}

// keyLength returns the bytes of the key; its fields are padded to registers
// of four bytes.
func (s set) keyLength() uint32 {
	n := uint32(0)
	for _, field := range s.key {
		n += (field + 3) / 4 * 4
	}
	return n
}

// describe tells the kernel where the fields of a key end.
func (s set) describe(a *netlink.AttributeEncoder) error {
	a.Nested(setDescConcat, func(a *netlink.AttributeEncoder) error {
		for _, field := range s.key {
			a.Nested(unix.NFTA_LIST_ELEM, func(a *netlink.AttributeEncoder) error {
				a.Uint32(setFieldLength, field)
				return nil
			})
		}
		return nil
	})
	return nil
}
