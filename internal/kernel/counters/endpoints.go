package counters

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Endpoint is the counter of one element in a map of endpoints: new connections
// of a frontend that one of its slots sent to an endpoint. It starts at 0 when the
// endpoint gets the slot. Connections of clients that session affinity remembers do not
// look for a slot.
type Endpoint struct {
	Frontend    model.Frontend
	Endpoint    netip.AddrPort
	Connections uint64
}

// EndpointCounts returns the counters of the endpoints of some frontends, one for each
// slot; none where these are not counted. It asks for them by key: the cost depends on
// these endpoints only.
func (r Reader) EndpointCounts(frontends []model.Frontend) ([]Endpoint, error) {
	return kernel.Consistent(r.Conn, "counters of endpoints", func() (out []Endpoint, err error) {
		for _, family := range model.Families {
			for _, name := range nft.SlotMaps {
				if out, err = r.appendEndpoints(out, name, family, frontends); err != nil {
					return nil, err
				}
			}
		}
		return out, nil
	})
}

// appendEndpoints appends the counters in one map of endpoints, none if it does not exist.
func (r Reader) appendEndpoints(out []Endpoint, name string, family model.Family, frontends []model.Frontend) ([]Endpoint, error) {
	s, _, err := r.Set(name, family)
	if errors.Is(err, unix.ENOENT) || err == nil && (!s.Counters || s.Key == nil || !s.HasSlots()) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	q := kernel.NewInquiry(s, family)
	for _, f := range frontends {
		if model.FamilyOf(f.Address) != family || f.IsRange() != s.HasRanges() {
			continue
		}
		q.Each = func(e *codec.Element) {
			out = append(out, Endpoint{f, e.Value.Endpoint, e.Packets})
		}
		// Clients outside of the cluster may have endpoints of their own.
		for _, first := range []uint32{nft.FirstSlot, nft.OwnSlots} {
			k := nft.FrontendKey(f)
			k.Slot = first
			if err := q.AskSlots(r.Conn, k); err != nil {
				return nil, fmt.Errorf("read counters of the endpoints of %s: %w", f, err)
			}
		}
	}
	return out, nil
}

// Element is the counter of one element in a map of frontends or of endpoints.
type Element struct {
	Set         *nft.Set
	Element     nft.Element // as the kernel has it
	Connections uint64
}

// LastCounts returns the counters that end when a plan is carried out: counters of the
// elements that it deletes or replaces in maps of frontends and of endpoints. It asks for
// them by key.
func (r Reader) LastCounts(p *plan.Plan) (out []Element, err error) {
	type place struct {
		name   string
		family model.Family
	}
	type ending struct {
		set  *nft.Set
		keys []nft.Element
	}
	all := make(map[place]ending)
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Old == nil || c.Set == nil || !c.Set.CountsConnections() {
			continue
		}
		at := place{c.Set.Name, c.Family}
		all[at] = ending{c.Set, append(all[at].keys, *c.Old)}
	}
	for at, e := range all {
		q := kernel.NewInquiry(e.set, at.family)
		q.Each = func(found *codec.Element) { out = append(out, Element{e.set, found.Element, found.Packets}) }
		if err := q.Ask(r.Conn, e.keys); err != nil {
			return nil, fmt.Errorf("read counters of changed elements in map %s of %s: %w", at.name, at.family, err)
		}
	}
	return out, nil
}
