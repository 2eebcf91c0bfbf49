package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// EndpointCount is the counter of one element in a map of endpoints: new connections
// of a frontend that one of its slots sent to an endpoint. It starts at 0 when the
// endpoint gets the slot. Connections of clients that session affinity remembers do not
// look for a slot.
type EndpointCount struct {
	Frontend    model.Frontend
	Endpoint    netip.AddrPort
	Connections uint64
}

// EndpointCounts returns the counters of the endpoints of some frontends, one for each
// slot; none where these are not counted. It asks for them by key: the cost depends on
// these endpoints only.
func (c *Conn) EndpointCounts(frontends []model.Frontend) ([]EndpointCount, error) {
	counts, _, err := consistent(c, "counters of endpoints", func() ([]EndpointCount, error) { return c.endpointCounts(frontends) },
		func([]EndpointCount) bool { return false })
	return counts, err
}

func (c *Conn) endpointCounts(frontends []model.Frontend) (out []EndpointCount, err error) {
	for _, family := range model.Families {
		for _, name := range nft.SlotMaps {
			counts, err := c.endpointCountsOf(name, family, frontends)
			if err != nil {
				return nil, err
			}
			out = append(out, counts...)
		}
	}
	return out, nil
}

// endpointCountsOf returns the counters in one map of endpoints, none if it does not
// exist.
func (c *Conn) endpointCountsOf(name string, family model.Family, frontends []model.Frontend) (out []EndpointCount, err error) {
	s, _, err := c.Set(name, family)
	if errors.Is(err, unix.ENOENT) || err == nil && (!s.Counters || s.Key == nil || !s.HasSlots()) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	q := newInquiry(s, family, nil)
	q.inRow = true
	for _, f := range frontends {
		if model.FamilyOf(f.Address) != family || f.IsRange() != s.HasRanges() {
			continue
		}
		q.each = func(e *codec.Element) {
			out = append(out, EndpointCount{f, e.Value.Endpoint, e.Packets})
		}
		if err := q.slots(c, f); err != nil {
			return nil, fmt.Errorf("read counters of the endpoints of %s: %w", f, err)
		}
	}
	return out, nil
}

// slots asks for the slots of a frontend: those from the first one on, and those of
// clients outside of the cluster that have endpoints of their own.
func (q *inquiry) slots(c *Conn, f model.Frontend) error {
	for _, first := range []uint32{nft.FirstSlot, nft.OwnSlots} {
		k := nft.FrontendKey(f)
		for k.Slot = first; ; {
			q.wanted, q.next, q.found, q.differs = q.wanted[:0], 0, q.found[:0], true
			for range guesses {
				q.wanted = append(q.wanted, nft.Element{Key: k})
				k.Slot++
			}
			if err := q.run(c); err != nil {
				return err
			}
			if len(q.found) < len(q.wanted) {
				break
			}
		}
	}
	return nil
}

// ElementCount is the counter of one element in a map of frontends or of endpoints.
type ElementCount struct {
	Set         *nft.Set
	Element     nft.Element // as the kernel has it
	Connections uint64
}

// LastCounts returns the counters that end when a plan is carried out: those of the
// elements that it deletes or replaces in maps of frontends and of endpoints. It asks for
// them by key.
func (c *Conn) LastCounts(p *plan.Plan) (out []ElementCount, err error) {
	type place struct {
		name   string
		family model.Family
	}
	ending := make(map[place]*inquiry)
	for i := range p.Changes {
		change := &p.Changes[i]
		if change.Old == nil || change.Set == nil || !change.Set.CountsConnections() {
			continue
		}
		at := place{change.Set.Name, change.Family}
		if ending[at] == nil {
			ending[at] = newInquiry(change.Set, change.Family, nil)
		}
		ending[at].wanted = append(ending[at].wanted, *change.Old)
	}
	for at, q := range ending {
		q.each = func(e *codec.Element) { out = append(out, ElementCount{q.decoder.Set, e.Element, e.Packets}) }
		if err := q.run(c); err != nil {
			return nil, fmt.Errorf("read counters of changed elements in map %s of %s: %w", at.name, at.family, err)
		}
	}
	return out, nil
}
