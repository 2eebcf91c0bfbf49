package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// MaxBindings is how many bindings of clients are read from one map at the most.
// The kernel goes through a set from its start for each datagram of a listing:
// 65,536 bindings take it a fifth of a second, a million more than a minute
// (measured on 6.18).
const MaxBindings = 1 << 16

// Bindings implements apply.Kernel. The listing has a socket of its own, because one
// that is broken off keeps its socket busy.
func (c *Conn) Bindings(f model.Family, limit int) ([]*nft.Set, error) {
	var out []*nft.Set
	for _, name := range nft.AffinityMaps {
		s, err := withSibling(c, func(c *Conn) (*nft.Set, error) { return c.bindings(name, f, limit) })
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return nil, fmt.Errorf("read map %s of %s: %w", name, f, err)
		default:
			out = append(out, s)
		}
	}
	return out, nil
}

// errEnough ends a listing.
var errEnough = errors.New("enough")

// bindings returns one affinity map with some of its elements, ENOENT without it.
func (c *Conn) bindings(name string, f model.Family, limit int) (*nft.Set, error) {
	s, count, err := c.Set(name, f)
	if err != nil {
		return nil, err
	}
	s.Elements = make([]nft.Element, 0, min(room(count), limit))
	err = c.eachElement(s, f, func(e *element) error {
		if len(s.Elements) == limit {
			return errEnough
		}
		s.Elements = append(s.Elements, e.Element)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	s.Sort() // a map that is resized meanwhile gives elements twice
	s.Elements = slices.CompactFunc(s.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	return s, nil
}

// AddBinding adds to a table that was read what its affinity maps have about one
// client of a frontend. There may be a million others, which are not read.
func (c *Conn) AddBinding(t *nft.Table, client netip.Addr, f model.Frontend) error {
	f = t.Serving(f)
	k := nft.Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port, Source: client}
	for _, s := range t.Sets {
		if !s.Dynamic || s.Key == nil {
			continue
		}
		found, err := persist(func() (*nft.Set, error) { return c.lookUp(s.Name, t.Family, k) })
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return fmt.Errorf("look up a client in map %s of %s: %w", s.Name, t.Family, err)
		default:
			s.Elements = found.Elements
		}
	}
	return nil
}

// lookUp returns a set with one of its elements, ENOENT without it.
func (c *Conn) lookUp(name string, f model.Family, k nft.Key) (*nft.Set, error) {
	s, _, err := c.Set(name, f)
	if err != nil {
		return nil, err
	}
	l := elementList{verb: unix.NFT_MSG_GETSETELEM}
	l.append(s, f, &nft.Element{Key: k})
	m := l.message()
	replies, err := c.request(m.Type, netlink.Request, m.Data)
	if err != nil {
		return nil, err
	}
	d := newElementDecoder(s, f)
	for _, reply := range replies {
		if err := d.message(reply, func(e *element) error {
			s.Elements = append(s.Elements, e.Element)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Unbind implements apply.Kernel.
func (c *Conn) Unbind(f model.Family, s *nft.Set) error {
	elements := s.Elements
	for len(elements) > 0 {
		err := c.unbind(f, s, elements)
		var refused *CommitError
		switch {
		case err == nil:
			return nil
		case !c.lacksDestroy && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)):
			c.lacksDestroy = true
		case !errors.Is(err, unix.ENOENT) || !errors.As(err, &refused):
			return fmt.Errorf("release clients: %w", err)
		default: // the time of this one was over before
			elements = slices.DeleteFunc(slices.Clone(elements), func(e nft.Element) bool {
				return refused.Element == nil || e.Key == refused.Element.Key
			})
		}
	}
	return nil
}

// destroySetElement is NFT_MSG_DESTROYSETELEM, since kernel 6.3: unlike
// NFT_MSG_DELSETELEM it takes an element that is not there for deleted.
const destroySetElement = 30

func (c *Conn) unbind(f model.Family, s *nft.Set, elements []nft.Element) error {
	l := elementList{verb: destroySetElement}
	if c.lacksDestroy {
		l.verb = unix.NFT_MSG_DELSETELEM
	}
	for i := range elements {
		l.append(s, f, &elements[i])
	}
	_, err := c.send(&Transaction{Messages: []Message{l.message()}}, AnyGeneration)
	return err
}

// AffinityUse reports how full an affinity map is. When it is full, new clients
// are served but not remembered.
type AffinityUse struct {
	Family model.Family
	Map    string
	Used   int // clients, with those whose time is over but which are not yet removed
	Size   int // most clients
	// AtLeast means that there may be more than Used: before kernel 6.16 the
	// kernel keeps no count, and they are counted up to a limit.
	AtLeast bool
}

// AffinityUse returns the use of the affinity maps that exist. It may be called
// while the connection is in use elsewhere.
func (c *Conn) AffinityUse() ([]AffinityUse, error) {
	var out []AffinityUse
	for _, f := range model.Families {
		for _, name := range nft.AffinityMaps {
			use, err := withSibling(c, func(c *Conn) (AffinityUse, error) { return c.affinityUse(name, f) })
			switch {
			case errors.Is(err, unix.ENOENT):
			case err != nil:
				return nil, fmt.Errorf("read use of map %s of %s: %w", name, f, err)
			default:
				out = append(out, use)
			}
		}
	}
	return out, nil
}

func (c *Conn) affinityUse(name string, f model.Family) (AffinityUse, error) {
	s, count, err := c.Set(name, f)
	if err != nil {
		return AffinityUse{}, err
	}
	use := AffinityUse{Family: f, Map: name, Used: count, Size: int(s.Size)}
	if count != unknownCount {
		return use, nil
	}
	use.Used = 0
	err = c.eachElement(s, f, func(*element) error {
		if use.Used == MaxBindings {
			return errEnough
		}
		use.Used++
		return nil
	})
	if use.AtLeast = errors.Is(err, errEnough); use.AtLeast {
		err = nil
	}
	return use, err
}
