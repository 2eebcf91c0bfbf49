package kernel

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Elements that nothing expects cannot be asked for, unless their keys can be guessed:
// after Services were deleted or scaled down, those that are left belong to the
// frontends that are not as expected in the map of all frontends. If these are all,
// the large sets need not be listed.

// isOfFrontends reports whether the keys of a set are frontends, or their slots, in the map
// of all frontends.
func (e *elements) isOfFrontends() bool {
	return e.set.Name != nft.ServicesMap && e.set.Name != nft.ServersMap && slices.Contains(e.set.Key, nft.Address) &&
		!slices.ContainsFunc(e.set.Key, func(d nft.Datatype) bool {
			return !slices.Contains([]nft.Datatype{nft.Address, nft.InetProto, nft.Port, nft.ClassID}, d)
		})
}

// unexpectedFrontends returns the keys in the map of all frontends whose elements are not
// wanted as they are. It must have been read.
func unexpectedFrontends(sets []*elements, f model.Family) (keys []nft.Key) {
	for _, e := range sets {
		if e.family != f || e.set.Name != nft.ServicesMap {
			continue
		}
		for i := range e.set.Elements {
			if w := e.findWanted(e.set.Elements[i].Key); w == nil || *w != e.set.Elements[i] {
				keys = append(keys, e.set.Elements[i].Key)
			}
		}
	}
	return keys
}

func (e *elements) findWanted(k nft.Key) *nft.Element {
	if e.wanted == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(e.wanted.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	if !ok {
		return nil
	}
	return &e.wanted.Elements[i]
}

// askAbout adds the elements of some frontends that are not wanted.
func (e *elements) askAbout(c *Conn, frontends []nft.Key) error {
	var found []nft.Element
	q := newInquiry(e.set, e.family, nil)
	q.inRow = true
	for _, k := range frontends {
		for more := true; more; k.Slot++ {
			q.wanted = e.appendGuesses(q.wanted[:0], k)
			q.next, q.found, q.differs = 0, q.found[:0], true
			if err := q.run(c); err != nil {
				return err
			}
			found = append(found, q.found...)
			if more = e.set.HasSlots() && len(q.found) == len(q.wanted); more {
				k.Slot = q.wanted[len(q.wanted)-1].Key.Slot
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	e.set.Elements = append(slices.Clip(e.set.Elements), found...)
	e.set.Sort()
	e.set.Elements = slices.CompactFunc(e.set.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	return nil
}

// appendGuesses appends keys that a set may have because of a frontend, from its slot on, and
// that are not wanted.
func (e *elements) appendGuesses(out []nft.Element, frontend nft.Key) []nft.Element {
	k := nft.Key{Address: frontend.Address}
	if slices.Contains(e.set.Key, nft.InetProto) {
		k.Protocol = frontend.Protocol
	}
	if slices.Contains(e.set.Key, nft.Port) {
		k.Port = frontend.Port
	}
	if !e.set.HasSlots() {
		if e.findWanted(k) == nil {
			out = append(out, nft.Element{Key: k})
		}
		return out
	}
	for k.Slot = max(frontend.Slot, nft.FirstSlot); e.findWanted(k) != nil; k.Slot++ {
	}
	for range guesses {
		out = append(out, nft.Element{Key: k})
		k.Slot++
	}
	return out
}
