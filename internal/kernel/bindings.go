package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// MaxBindings is the most bindings of clients that are read from one map. The
// kernel walks a set from its start for each datagram of a listing: 65,536
// bindings take it a fifth of a second, a million more than a minute (measured
// on 6.18).
const MaxBindings = 1 << 16

// affinityMaps calls read for the affinity maps of a family that exist. Each call
// has its own connection, because a connection stays busy after an aborted listing.
func affinityMaps[T any](c *Conn, f model.Family, read func(c *Conn, name string) (T, error)) ([]T, error) {
	var out []T
	for _, name := range nft.AffinityMaps {
		v, err := withSibling(c, func(c *Conn) (T, error) { return read(c, name) })
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return nil, fmt.Errorf("read map %s of %s: %w", name, f, err)
		default:
			out = append(out, v)
		}
	}
	return out, nil
}

// Bindings implements apply.Kernel.
func (c *Conn) Bindings(f model.Family, limit int) ([]*nft.Set, error) {
	return affinityMaps(c, f, func(c *Conn, name string) (*nft.Set, error) { return c.readBindings(name, f, limit) })
}

// readBindings returns one affinity map with some of its elements, ENOENT without it.
func (c *Conn) readBindings(name string, f model.Family, limit int) (*nft.Set, error) {
	s, count, err := c.Set(name, f)
	if err != nil {
		return nil, err
	}
	s.Elements = make([]nft.Element, 0, min(codec.Room(count), limit))
	if _, err := c.eachOfFirst(limit, s, f, func(e *codec.Element) { s.Elements = append(s.Elements, e.Element) }); err != nil {
		return nil, err
	}
	s.Sort() // a map that is resized during the listing repeats elements
	s.Elements = slices.CompactFunc(s.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	return s, nil
}

// AddBinding adds the bindings of one client of a frontend to the affinity maps of
// a table. It does not read bindings of other clients: there may be a million.
func (c *Conn) AddBinding(t *nft.Table, client netip.Addr, f model.Frontend) error {
	f = t.Serving(f)
	k := nft.Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port, Source: client}
	for _, s := range t.Sets {
		if !s.Dynamic || s.Key == nil || !slices.Contains(nft.AffinityMaps, s.Name) {
			continue
		}
		key, ok := t.ClientKey(s.Name, f, k)
		if !ok {
			continue
		}
		found, err := retryQuestion(func() (*nft.Set, error) { return c.lookUp(s.Name, t.Family, key) })
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
	l := codec.ElementList{Verb: unix.NFT_MSG_GETSETELEM}
	l.Append(s, f, &nft.Element{Key: k})
	m := l.Message()
	replies, err := c.sendRequest(m.Type, netlink.Request, m.Data)
	if err != nil {
		return nil, err
	}
	d := codec.NewElementDecoder(s, f)
	for _, reply := range replies {
		if err := d.Message(reply.Data, func(e *codec.Element) error {
			s.Elements = append(s.Elements, e.Element)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Unbind implements apply.Kernel. A client that packets bind to another endpoint after the
// kernel was asked loses that binding: the kernel deletes an element by its key, with any
// data, and packets do not change the generation. It deletes a few microseconds
// after it was asked.
func (c *Conn) Unbind(f model.Family, s *nft.Set) error {
	elements, err := c.unchangedElements(f, s)
	if err != nil {
		return fmt.Errorf("look up clients to release: %w", err)
	}
	for len(elements) > 0 {
		err := c.deleteBindings(f, s, elements)
		var refused *CommitError
		switch {
		case err == nil:
			return nil
		case !c.lacksDestroy && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)):
			c.lacksDestroy = true
		case !errors.Is(err, unix.ENOENT) || !errors.As(err, &refused):
			return fmt.Errorf("release clients: %w", err)
		default: // this one has expired
			elements = slices.DeleteFunc(slices.Clone(elements), func(e nft.Element) bool {
				return refused.Element == nil || e.Key == refused.Element.Key
			})
		}
	}
	return nil
}

func (c *Conn) unchangedElements(f model.Family, s *nft.Set) ([]nft.Element, error) {
	was := make(map[nft.Key]nft.Value, len(s.Elements))
	for i := range s.Elements {
		was[s.Elements[i].Key] = s.Elements[i].Value
	}
	found, err := NewInquiry(s, f).Ask(c, s.Elements)
	out := make([]nft.Element, 0, len(found))
	for _, e := range found {
		if was[e.Key] == e.Value {
			out = append(out, e.Element)
		}
	}
	return out, err
}

func (c *Conn) deleteBindings(f model.Family, s *nft.Set, elements []nft.Element) error {
	l := codec.ElementList{Verb: codec.DestroySetElement}
	if c.lacksDestroy {
		l.Verb = unix.NFT_MSG_DELSETELEM
	}
	for i := range elements {
		l.Append(s, f, &elements[i])
	}
	_, err := c.send(&codec.Transaction{Messages: []codec.Message{l.Message()}}, AnyGeneration)
	return err
}

// AffinityUse reports how full an affinity map is. When it is full, new clients
// are served but not remembered.
type AffinityUse struct {
	Family model.Family
	Map    string
	Used   int // clients, also expired ones that are not yet removed
	Size   int // most clients
	// AtLeast means that there may be more than Used: before kernel 6.16 the
	// kernel keeps no count, and clients are counted up to a limit.
	AtLeast bool
}

// AffinityUse returns the use of the affinity maps that exist. It may be called
// while the connection is in use elsewhere.
func (c *Conn) AffinityUse() ([]AffinityUse, error) {
	var out []AffinityUse
	for _, f := range model.Families {
		uses, err := affinityMaps(c, f, func(c *Conn, name string) (AffinityUse, error) { return c.affinityUse(name, f) })
		if err != nil {
			return nil, err
		}
		out = append(out, uses...)
	}
	return out, nil
}

func (c *Conn) affinityUse(name string, f model.Family) (AffinityUse, error) {
	s, count, err := c.Set(name, f)
	if err != nil {
		return AffinityUse{}, err
	}
	use := AffinityUse{Family: f, Map: name, Used: count, Size: int(s.Size)}
	if count == codec.UnknownCount {
		use.Used = 0
		use.AtLeast, err = c.eachOfFirst(MaxBindings, s, f, func(*codec.Element) { use.Used++ })
	}
	return use, err
}
