// Package counters reads what our tables count: new connections to frontends and to their
// endpoints, and what limits have dropped.
package counters

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Reader reads counters over a connection.
type Reader struct{ *kernel.Conn }

// Frontend is the counter of one element in a map of frontends: its new
// connections, including refused and dropped ones. A client without an answer
// tries again and is counted again.
type Frontend struct {
	Frontend model.FrontendID
	// Outside means that only clients outside of the cluster are counted, because
	// another verdict applies to them.
	Outside bool
	// Connections starts at 0 when the element is added or its verdict replaced.
	Connections uint64
}

// Counted reports whether our tables count the connections to frontends, and those to
// endpoints; neither if there are no tables.
func (r Reader) Counted() (frontends, endpoints bool, err error) {
	if frontends, err = r.HasCounters(nft.ServicesMap); err == nil {
		endpoints, err = r.HasCounters(nft.EndpointsMap)
	}
	return frontends, endpoints, err
}

// FrontendCounts returns the counters of all frontends, in no order; none where
// nothing is counted.
func (r Reader) FrontendCounts() ([]Frontend, error) {
	return kernel.Consistent(r.Conn, "counters", func() (out []Frontend, err error) {
		for _, f := range model.Families {
			for _, name := range slices.Concat(nft.ServiceMaps, nft.LocalServiceMaps) {
				if out, err = r.appendCounts(out, name, f); err != nil {
					return nil, err
				}
			}
		}
		return out, nil
	})
}

func (r Reader) appendCounts(out []Frontend, name string, f model.Family) ([]Frontend, error) {
	outside := slices.Contains(nft.LocalServiceMaps, name)
	err := r.readCounts(name, f, func(id model.FrontendID, packets uint64) { out = append(out, Frontend{id, outside, packets}) })
	return out, err
}

// readCounts calls each for the counters of one set, if it exists and counts. Packets may add
// elements to a dynamic one meanwhile.
func (r Reader) readCounts(name string, f model.Family, each func(id model.FrontendID, packets uint64)) error {
	s, count, err := r.Set(name, f)
	if errors.Is(err, unix.ENOENT) || err == nil && !s.Counters && !s.Dynamic {
		return nil
	}
	if err != nil {
		return err
	}
	seen := make(map[model.FrontendID]bool, codec.Room(count))
	err = r.EachElement(s, f, func(e *codec.Element) error {
		id := s.FrontendID(e.Key)
		if seen[id] {
			return kernel.ErrInconsistent
		}
		seen[id] = true
		each(id, e.Packets)
		return nil
	})
	if n := len(seen); err == nil && count != codec.UnknownCount && (n < count || n > count && !s.Dynamic) {
		err = kernel.ErrInconsistent
	}
	return err
}

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
		// Clients outside of the cluster may have endpoints of their own.
		for _, first := range []uint32{nft.FirstSlot, nft.OwnSlots} {
			k := nft.FrontendKey(f)
			k.Slot = first
			found, err := q.AskSlots(r.Conn, k)
			if err != nil {
				return nil, fmt.Errorf("read counters of the endpoints of %s: %w", f, err)
			}
			for i := range found {
				out = append(out, Endpoint{f, found[i].Value.Endpoint, found[i].Packets})
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
		found, err := kernel.NewInquiry(e.set, at.family).Ask(r.Conn, e.keys)
		if err != nil {
			return nil, fmt.Errorf("read counters of changed elements in map %s of %s: %w", at.name, at.family, err)
		}
		for i := range found {
			out = append(out, Element{e.set, found[i].Element, found[i].Packets})
		}
	}
	return out, nil
}

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

// Refusal counts the first packets of connections that the rules refused for a reason. A client
// that tries again is counted again.
type Refusal struct {
	Reason model.RefusalReason
	// Dialled is the address, protocol and port that clients dialled, or of a range of ports
	// its first port. Reasons that are counted by address have neither protocol nor port, and
	// those that are counted by protocol the unspecified address.
	Dialled model.FrontendID
	Packets uint64 // since the first one after the frontend was added
}

// Refusals returns the counters of refused connections, in no order; none where these are
// not counted.
func (r Reader) Refusals() ([]Refusal, error) {
	return kernel.Consistent(r.Conn, "counters of refused connections", func() (out []Refusal, err error) {
		for _, f := range model.Families {
			for reason, row := range model.Refusals {
				for _, s := range []nft.Shape{nft.OfPort, nft.OfRange} {
					if s == nft.OfRange && row.CountedBy != model.ByFrontend {
						continue
					}
					reason := model.RefusalReason(reason)
					if err = r.readCounts(nft.RefusalOf(reason, s), f, func(id model.FrontendID, packets uint64) {
						out = append(out, Refusal{reason, id, packets})
					}); err != nil {
						return nil, err
					}
				}
			}
		}
		return out, nil
	})
}

// forgetStep is how many counters one transaction removes. It takes less than a millisecond,
// for which a change may have to wait.
const forgetStep = 256

// ForgetRefusals removes the counters for which gone returns true.
func (r Reader) ForgetRefusals(gone func(*Refusal) bool) error {
	all, err := r.Refusals()
	if err != nil {
		return err
	}
	type place struct {
		set    string
		family model.Family
	}
	keys := make(map[place][]nft.Element)
	for i := range all {
		n := &all[i]
		if !gone(n) {
			continue
		}
		d, shape := n.Dialled, nft.OfPort
		if d.Range {
			shape = nft.OfRange
		}
		at := place{nft.RefusalOf(n.Reason, shape), model.FamilyOf(d.Address)}
		keys[at] = append(keys[at], nft.Element{Key: nft.Key{Address: d.Address, Protocol: d.Protocol, Port: d.Port}})
	}
	for at, elements := range keys {
		for some := range slices.Chunk(elements, forgetStep) {
			s := nft.Declare(at.set)
			s.Elements = some
			if err := r.Unbind(at.family, s); err != nil {
				return fmt.Errorf("remove counters of frontends that are gone from set %s of %s: %w", at.set, at.family, err)
			}
		}
	}
	return nil
}
