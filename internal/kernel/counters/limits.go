package counters

import (
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Limit counts the packets that one kind of limit of a frontend has dropped. A client that tries
// again is counted again.
type Limit struct {
	Frontend model.FrontendID
	Kind     model.LimitKind
	Packets  uint64 // since the limit was switched on
}

// LimitDrops returns the packets that limits of all frontends have dropped, in no order.
func (r Reader) LimitDrops() ([]Limit, error) {
	return kernel.Consistent(r.Conn, "counters of limits", func() (out []Limit, err error) {
		for _, f := range model.Families {
			for k := range model.LimitKinds {
				kind := model.LimitKind(k)
				var counts []Frontend
				for _, shape := range []nft.Shape{nft.OfPort, nft.OfRange} {
					if counts, err = r.appendCounts(counts, shape.Set(nft.OverSet(kind)), f); err != nil {
						return nil, err
					}
				}
				for _, n := range counts {
					out = append(out, Limit{n.Frontend, kind, n.Connections})
				}
			}
		}
		return out, nil
	})
}
