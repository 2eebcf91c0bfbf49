package kernel

import "github.com/nftproxy/nftproxy/internal/nft"

// Entries of nft's notes on sets and elements (libnftnl's udata.h).
const (
	udataSetKeyByteOrder  = 0
	udataSetDataByteOrder = 1

	udataElemComment = 0
	byteOrderHost    = 1
	byteOrderBig     = 2
)

// setUserdata returns nft's notes on a set, without which nft would list it with
// another declaration.
func setUserdata(s *nft.Set) userdata {
	var u userdata
	u.uint32(udataSetKeyByteOrder, byteOrder(s.Key))
	if len(s.Data) > 0 {
		u.uint32(udataSetDataByteOrder, byteOrder(s.Data))
	}
	return u
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
