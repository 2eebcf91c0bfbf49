package nft

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Exchange is a frontend with one port that gets as many endpoints as it loses. The others stay in
// their slots.
type Exchange struct {
	Frontend  model.Frontend
	Endpoints int // that it has, each in one slot from [FirstSlot] on
	// Out are the endpoints that it loses, and In those that it gets, by their positions in the
	// order that rendering proposes before and after it, ascending. The others have the same order
	// in both.
	Out, In []Position
}

// Position is an endpoint at a position.
type Position struct {
	At       uint32
	Endpoint netip.AddrPort
}
