package counters

import (
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Limit counts the packets that one kind of limit of a frontend has dropped, or had no room for. A client that
// tries again is counted again.
type Limit struct {
	Frontend model.FrontendID
	Kind     model.LimitKind
	Packets  uint64 // since the limit was switched on
}

// LimitDrops returns the packets that limits of all frontends have dropped, in no order.
func (r Reader) LimitDrops() ([]Limit, error) { return r.limitCounts(nft.OverSet) }

// Unlimited returns the packets to all frontends of clients that a limit of clients had no room for, in no order.
func (r Reader) Unlimited() ([]Limit, error) { return r.limitCounts(nft.FullSet) }

// limitCounts returns the counters of the sets of frontends for each kind of limit; empty: it has none.
func (r Reader) limitCounts(setOf func(model.LimitKind) string) ([]Limit, error) {
	return kernel.Consistent(r.Conn, "counters of limits", func() (out []Limit, err error) {
		for _, f := range model.Families {
			for k := range model.LimitKinds {
				kind := model.LimitKind(k)
				set := setOf(kind)
				if set == "" {
					continue
				}
				var counts []Frontend
				for _, shape := range []nft.Shape{nft.OfPort, nft.OfRange} {
					if counts, err = r.appendCounts(counts, shape.Set(set), f); err != nil {
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
