package counters

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
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
