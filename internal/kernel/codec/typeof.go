package codec

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Entries of nft's notes on sets and elements (libnftnl's udata.h).
const (
	udataSetKeyByteOrder  = 0
	udataSetDataByteOrder = 1
	udataSetKeyTypeof     = 3
	udataSetDataTypeof    = 4

	udataElemComment = 0
	byteOrderHost    = 1
	byteOrderBig     = 2
)

// Numbers in nft's notes on a set declared by "typeof": of expressions (its enum
// expr_types), of protocol descriptions, and of the fields in them.
const (
	nftExprPayload = 7
	nftExprMeta    = 9
	nftExprConcat  = 13
	nftExprNumgen  = 23

	nftDescTransport = 11
	nftDescIPv4      = 12
	nftDescIPv6      = 13

	nftTransportDport = 2
	nftIPv4Daddr      = 12
	nftIPv6Daddr      = 9
)

// setUserdata returns nft's notes on a set, without which nft would list it with
// another declaration. The number of a slot has no type name, so that a map with it is
// declared by the expressions of its key.
func setUserdata(s *nft.Set, f model.Family) userdata {
	var u userdata
	u.appendUint32(udataSetKeyByteOrder, byteOrder(s.Key))
	if len(s.Data) > 0 {
		u.appendUint32(udataSetDataByteOrder, byteOrder(s.Data))
	}
	if slices.Contains(s.Key, nft.SlotNumber) {
		u.appendBytes(udataSetKeyTypeof, describeTypes(s.Key, f))
		u.appendBytes(udataSetDataTypeof, describeTypes(s.Data, f))
	}
	return u
}

func describeTypes(types []nft.Datatype, f model.Family) userdata {
	if len(types) == 1 {
		return typeofField(types[0], f)
	}
	var parts userdata
	for i, d := range types {
		parts.appendBytes(uint8(i), typeofField(d, f))
	}
	return describeExpression(nftExprConcat, parts)
}

func describeExpression(kind uint32, parts userdata) (u userdata) {
	u.appendUint32(0, kind)
	u.appendBytes(1, parts)
	return u
}

func typeofField(d nft.Datatype, f model.Family) userdata {
	kind, values := uint32(nftExprPayload), []uint32{nftDescIPv4, nftIPv4Daddr}
	switch {
	case d == nft.InetProto:
		kind, values = nftExprMeta, []uint32{unix.NFT_META_L4PROTO}
	case d == nft.RangeID:
		kind, values = nftExprMeta, []uint32{unix.NFT_META_PRIORITY}
	case d == nft.Port:
		values = []uint32{nftDescTransport, nftTransportDport}
	case d == nft.SlotNumber:
		kind, values = nftExprNumgen, []uint32{unix.NFT_NG_INCREMENTAL, 2, 0} // mode, modulus, offset
	case f == model.IPv6:
		values = []uint32{nftDescIPv6, nftIPv6Daddr}
	}
	var fields userdata
	for i, v := range values {
		fields.appendUint32(uint8(i), v)
	}
	return describeExpression(kind, fields)
}

// byteOrder returns nft's number for the byte order of a single value. Verdicts and
// concatenations have none.
func byteOrder(types []nft.Datatype) uint32 {
	switch {
	case len(types) > 1 || types[0] == nft.Verdicts:
		return 0
	case types[0] == nft.ClassID:
		return byteOrderHost
	}
	return byteOrderBig
}
