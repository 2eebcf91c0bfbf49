package kernel

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// LimitDrops is what one kind of limit of a frontend has dropped. A client that tries
// again is counted again.
type LimitDrops struct {
	Frontend model.FrontendID
	Kind     model.LimitKind
	Packets  uint64 // since the limit was switched on
}

// LimitDrops returns what the limits of all frontends have dropped, in no order.
func (c *Conn) LimitDrops() ([]LimitDrops, error) {
	drops, _, err := consistent(c, "counters of limits", c.limitDrops, func([]LimitDrops) bool { return false })
	return drops, err
}

func (c *Conn) limitDrops() ([]LimitDrops, error) {
	var out []LimitDrops
	for _, f := range model.Families {
		for k := range model.LimitKinds {
			for _, shape := range []nft.Shape{nft.OfPort, nft.OfRange} {
				counts, err := c.countsOf(shape.Set(nft.OverSet(model.LimitKind(k))), f)
				if err != nil {
					return nil, err
				}
				for _, n := range counts {
					out = append(out, LimitDrops{n.Frontend, model.LimitKind(k), n.Connections})
				}
			}
		}
	}
	return out, nil
}
