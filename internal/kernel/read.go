package kernel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

var (
	// ErrChanged means that other programs changed the ruleset while it was read.
	ErrChanged = errors.New("the ruleset keeps changing")
	// errInconsistent means that a dump left out elements or repeated some. The
	// kernel resizes the hash table of a set some time after the elements were
	// added, and does not change the generation then (seen on 6.18,
	// TestReadAfterLoad).
	errInconsistent = errors.New("elements are missing or duplicated")
)

// Read implements apply.Kernel. The dumps do not show one moment: they are
// repeated until the generation is the same before and after. If other programs
// write to their own tables too often for that, two equal readings will do. The
// owner of the tables needs neither, nor a generation to write: nothing else can
// change them.
func (c *Conn) Read() (*nft.Ruleset, uint32, error) {
	owner, err := persist(c.isOwner)
	if err != nil {
		return nil, 0, fmt.Errorf("get table: %w", explain(err))
	}
	var last *nft.Ruleset
	rs, generation, err := consistent(c, "ruleset", c.dump, func(now *nft.Ruleset) bool {
		same := owner || last != nil && equal(last, now)
		last = now
		return same
	})
	if owner {
		generation = AnyGeneration
	}
	return rs, generation, err
}

func equal(a, b *nft.Ruleset) bool {
	return slices.EqualFunc(a.Tables, b.Tables, func(a, b *nft.Table) bool {
		return a.Family == b.Family && reflect.DeepEqual(a.Chains, b.Chains) &&
			slices.EqualFunc(a.Sets, b.Sets, func(a, b *nft.Set) bool {
				return a.Same(b) && slices.Equal(a.Elements, b.Elements)
			})
	})
}

// consistent reads until the ruleset did not change during a reading, or until the
// change is harmless. It also returns the generation.
func consistent[T any](c *Conn, what string, read func() (T, error), harmless func(T) bool) (T, uint32, error) {
	var generation uint32
	v, err := persist(func() (v T, err error) {
		before, err := c.Generation()
		if err != nil {
			return v, err
		}
		if v, err = read(); err != nil {
			return v, fmt.Errorf("read %s: %w", what, err)
		}
		if generation, err = c.Generation(); err != nil {
			return v, err
		}
		if generation != before && !harmless(v) {
			return v, fmt.Errorf("read %s: %w", what, ErrChanged)
		}
		return v, nil
	})
	if err != nil {
		var none T
		return none, 0, explain(err)
	}
	return v, generation, nil
}

// Generation returns the number that every transaction increments.
func (c *Conn) Generation() (uint32, error) {
	replies, err := c.request(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	for _, m := range replies {
		a := netlinkio.ReadMessage(m.Data, &err)
		for a.Next() {
			if a.Type == unix.NFTA_GEN_ID {
				generation := a.Uint32()
				return generation, err
			}
		}
	}
	return 0, errors.New("read generation: the answer has none")
}

func (c *Conn) dump() (*nft.Ruleset, error) {
	rs := &nft.Ruleset{}
	for _, f := range model.Families {
		t, err := c.dumpTable(f)
		if err != nil {
			return nil, err
		}
		if t != nil {
			rs.Tables = append(rs.Tables, t)
		}
	}
	return rs, nil
}

// dumpTable returns our table of a family, or nil.
func (c *Conn) dumpTable(f model.Family) (*nft.Table, error) {
	state, err := c.table(f)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get table: %w", err)
	}
	t := &nft.Table{Family: f, Foreign: state.flags&unix.NFT_TABLE_F_DORMANT != 0}
	for _, part := range []struct {
		typ  uint16
		name string
		add  func(*nft.Table, netlink.Message) error
	}{
		{unix.NFT_MSG_GETOBJ, "objects", addObject},
		{unix.NFT_MSG_GETFLOWTABLE, "flow tables", addObject},
		{unix.NFT_MSG_GETSET, "sets", c.addSet},
		{unix.NFT_MSG_GETCHAIN, "chains", addChain},
		{unix.NFT_MSG_GETRULE, "rules", addRule},
	} {
		replies, err := c.requestAll(part.typ, inTable(f))
		for i := 0; err == nil && i < len(replies); i++ {
			err = part.add(t, replies[i])
		}
		switch {
		case errors.Is(err, unix.ENOENT): // it was there a moment ago
			return nil, ErrChanged
		case err != nil:
			return nil, fmt.Errorf("dump %s: %w", part.name, err)
		}
	}
	return t, nil
}

// addObject marks a table that has a stateful object or a flow table, which we
// never write.
func addObject(t *nft.Table, m netlink.Message) error {
	t.Foreign = t.Foreign || nameIn(m, unix.NFTA_TABLE_NAME) == nft.TableName
	return nil
}

func addChain(t *nft.Table, m netlink.Message) error {
	chain, table, err := decodeChain(m)
	if table == nft.TableName { // not every kernel filters
		t.Chains = append(t.Chains, chain)
	}
	return err
}

func addRule(t *nft.Table, m netlink.Message) error {
	rule, table, name, err := decodeRule(m, t.Family)
	if chain := t.Chain(name); chain != nil && table == nft.TableName {
		chain.Rules = append(chain.Rules, rule)
	}
	return err
}

// addSet adds a set with its elements, unless it is part of a rule. Elements of
// sets that we would not write cannot be decoded, and those of dynamic maps are
// state.
func (c *Conn) addSet(t *nft.Table, m netlink.Message) error {
	s, count, err := decodeSet(m, t.Family)
	if err != nil || s == nil {
		return err
	}
	t.Sets = append(t.Sets, s)
	switch {
	case s.Key == nil || s.Dynamic:
		return nil
	case s.Interval:
		err = c.dumpIntervals(s, t.Family)
	default:
		err = c.dumpElements(s, count, t.Family)
	}
	if err != nil {
		return fmt.Errorf("elements of %s: %w", s.Name, err)
	}
	return nil
}

// Set returns the declaration of one set and the number of its elements, as far
// as the kernel reports it; ENOENT if there is none.
func (c *Conn) Set(name string, f model.Family) (*nft.Set, int, error) {
	replies, err := c.request(unix.NFT_MSG_GETSET, netlink.Request, inSet(name, f))
	if err != nil {
		return nil, 0, err
	}
	for _, m := range replies {
		if s, count, err := decodeSet(m, f); err == nil && s != nil && s.Key != nil {
			return s, count, nil
		}
	}
	return nil, 0, unix.ENOENT
}

// eachElement calls each for the elements of a set while they arrive: a dump can
// have tens of megabytes. The element is valid during the call only. [errEnough]
// ends the dump and closes the connection: there is no other way to stop the
// kernel from sending the rest.
func (c *Conn) eachElement(s *nft.Set, f model.Family, each func(*element) error) error {
	if err := c.prepare(); err != nil {
		return err
	}
	request, err := c.nl.Send(question(unix.NFT_MSG_GETSETELEM, netlink.Request|netlink.Dump, inSet(s.Name, f)))
	if err != nil {
		return err
	}
	d := newElementDecoder(s, f)
	for m, err := range c.nl.ReceiveIter() {
		if err == nil {
			err = netlink.Validate(request, []netlink.Message{m})
		}
		if err == nil {
			err = d.message(m, each)
		}
		if errors.Is(err, errEnough) {
			return errors.Join(err, c.nl.Close()) // before the iterator receives the rest
		}
		if err != nil {
			c.note(err)
			return err
		}
		netlinkio.Renew(c.nl)
	}
	return nil
}

var errEnough = errors.New("enough")

// eachOfFirst calls each for at most limit elements, and reports whether there are
// more.
func (c *Conn) eachOfFirst(limit int, s *nft.Set, f model.Family, each func(*element)) (more bool, err error) {
	n := 0
	err = c.eachElement(s, f, func(e *element) error {
		if n == limit {
			return errEnough
		}
		n++
		each(e)
		return nil
	})
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}

// dumpElements fills a set of single keys.
func (c *Conn) dumpElements(s *nft.Set, count int, f model.Family) error {
	catchAll := false
	s.Elements = make([]nft.Element, 0, room(count))
	if err := c.eachElement(s, f, func(e *element) error {
		catchAll = catchAll || e.isCatchAll()
		s.Elements = append(s.Elements, e.Element)
		return nil
	}); err != nil {
		return err
	}
	if catchAll {
		s.Key, s.Elements = nil, nil // not a set of ours
		return nil
	}
	if count != unknownCount && count != len(s.Elements) {
		return errInconsistent
	}
	s.Sort()
	for i := 1; i < len(s.Elements); i++ {
		if s.Elements[i].Key == s.Elements[i-1].Key {
			return errInconsistent
		}
	}
	return nil
}

// dumpIntervals fills an interval set. It is a tree, which is never resized, so
// its elements need not be counted.
func (c *Conn) dumpIntervals(s *nft.Set, f model.Family) error {
	var all []element
	if err := c.eachElement(s, f, func(e *element) error { all = append(all, *e); return nil }); err != nil {
		return err
	}
	understood := !slices.ContainsFunc(all, func(e element) bool { return e.isCatchAll() })
	switch {
	case !understood:
	case s.Concat():
		s.Elements, understood = concatIntervals(all)
		s.Sort()
	default:
		s.Elements = joinIntervals(all)
	}
	if !understood {
		s.Key, s.Elements = nil, nil // not a set of ours
	}
	return nil
}
