package kernel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

var (
	// ErrChanged means that other programs changed the ruleset while it was read.
	ErrChanged = errors.New("the ruleset keeps changing")
	// ErrInconsistent means that a dump left out elements or repeated some. The
	// kernel resizes the hash table of a set some time after the elements were
	// added, and does not change the generation then. Each datagram of a dump goes on
	// behind as many elements as were walked, which are others by then: those that it
	// leaves out are as many as those that it repeats (TestResizedDuringListing).
	ErrInconsistent = errors.New("elements are missing or duplicated")
)

// Read returns our tables and their generation, [AnyGeneration] if nothing else can
// change them.
func (c *Conn) Read() (*nft.Ruleset, uint32, error) { return c.ReadExpecting(&nft.Ruleset{}) }

// ReadExpecting implements apply.Kernel. It is faster for tables that are as expected,
// and the result may then share their elements.
//
// Answers of the kernel do not show one moment: everything is read again until the
// generation is the same before and after. If other programs write to their own tables
// too often for that, two equal readings will do. The owner of the tables needs neither,
// nor a generation to write: nothing else can change them.
func (c *Conn) ReadExpecting(expected *nft.Ruleset) (*nft.Ruleset, uint32, error) {
	return reading{expected, askFrom}.run(c)
}

func (r reading) run(c *Conn) (*nft.Ruleset, uint32, error) {
	owner, err := retryQuestion(c.IsOwner)
	if err != nil {
		return nil, 0, fmt.Errorf("get table: %w", addRemedy(err))
	}
	var last *nft.Ruleset
	rs, generation, err := readConsistently(c, "ruleset", func() (*nft.Ruleset, error) { return r.readTables(c) }, func(now *nft.Ruleset) bool {
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

// Consistent returns the result of a reading during which no program changed the ruleset.
func Consistent[T any](c *Conn, what string, read func() (T, error)) (T, error) {
	v, _, err := readConsistently(c, what, read, func(T) bool { return false })
	return v, err
}

// readConsistently reads until the ruleset did not change during a reading, or until the
// change is harmless. It also returns the generation.
func readConsistently[T any](c *Conn, what string, read func() (T, error), harmless func(T) bool) (T, uint32, error) {
	var generation uint32
	v, err := retryQuestion(func() (v T, err error) {
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
		return none, 0, addRemedy(err)
	}
	return v, generation, nil
}

// Generation returns the number that every transaction increments.
func (c *Conn) Generation() (uint32, error) {
	replies, err := c.sendRequest(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)
	if err != nil {
		if errors.As(err, new(*permissionError)) {
			return 0, err // the first question of every command: which one does not matter
		}
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

// reading is how our tables are read.
type reading struct {
	expected *nft.Ruleset
	askFrom  int // elements: see the constant
}

func (r reading) readTables(c *Conn) (*nft.Ruleset, error) {
	rs := &nft.Ruleset{}
	var all []*elements
	for _, f := range model.Families {
		t, sets, err := c.dumpTable(f)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		rs.Tables = append(rs.Tables, t)
		all = append(all, sets...)
		if expected := r.expected.Table(f); expected != nil {
			for _, e := range sets {
				e.wanted = expected.Set(e.set.Name)
			}
		}
	}
	if err := r.readElements(c, all); errors.Is(err, unix.ENOENT) { // it was there a moment ago
		return nil, ErrChanged
	} else if err != nil {
		return nil, err
	}
	return rs, nil
}

func (c *Conn) dumpTable(f model.Family) (*nft.Table, []*elements, error) {
	state, err := c.stateOfTable(f)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get table: %w", err)
	}
	t := &nft.Table{Family: f, Foreign: state.flags&unix.NFT_TABLE_F_DORMANT != 0}
	var sets []*elements
	for _, part := range []struct {
		typ  uint16
		name string
		add  func(*nft.Table, netlink.Message) error
	}{
		{unix.NFT_MSG_GETOBJ, "objects", addObject},
		{unix.NFT_MSG_GETFLOWTABLE, "flow tables", addObject},
		{unix.NFT_MSG_GETSET, "sets", func(t *nft.Table, m netlink.Message) error { return addSet(t, m, &sets) }},
		{unix.NFT_MSG_GETCHAIN, "chains", addChain},
		{unix.NFT_MSG_GETRULE, "rules", addRule},
	} {
		replies, err := c.requestAll(part.typ, codec.InTable(f))
		for i := 0; err == nil && i < len(replies); i++ {
			err = part.add(t, replies[i])
		}
		switch {
		case errors.Is(err, unix.ENOENT): // it was there a moment ago
			return nil, nil, ErrChanged
		case err != nil:
			return nil, nil, fmt.Errorf("dump %s: %w", part.name, err)
		}
	}
	return t, sets, nil
}

// addObject marks a table that has a stateful object or a flow table, which we
// never write.
func addObject(t *nft.Table, m netlink.Message) error {
	t.Foreign = t.Foreign || nameIn(m, unix.NFTA_TABLE_NAME) == nft.TableName
	return nil
}

func addChain(t *nft.Table, m netlink.Message) error {
	chain, table, err := codec.DecodeChain(m)
	if table == nft.TableName { // not every kernel filters
		t.Chains = append(t.Chains, chain)
	}
	return err
}

func addRule(t *nft.Table, m netlink.Message) error {
	rule, table, name, err := codec.DecodeRule(m, t.Family)
	if chain := t.Chain(name); chain != nil && table == nft.TableName {
		chain.Rules = append(chain.Rules, rule)
	}
	return err
}

// addSet adds a set, unless it is part of a rule, and notes to read its elements.
// Elements of sets that we would not write cannot be decoded, and elements of dynamic maps
// are state.
func addSet(t *nft.Table, m netlink.Message, sets *[]*elements) error {
	s, count, err := codec.DecodeSet(m, t.Family)
	if err != nil || s == nil {
		return err
	}
	t.Sets = append(t.Sets, s)
	if s.Key != nil && !s.Dynamic {
		*sets = append(*sets, &elements{set: s, family: t.Family, count: count})
	}
	return nil
}

// Set returns the declaration of one set and the number of its elements, as far
// as the kernel reports it; ENOENT if there is none.
func (c *Conn) Set(name string, f model.Family) (*nft.Set, int, error) {
	replies, err := c.sendRequest(unix.NFT_MSG_GETSET, netlink.Request, codec.InSet(name, f))
	if err != nil {
		return nil, 0, err
	}
	for _, m := range replies {
		if s, count, err := codec.DecodeSet(m, f); err == nil && s != nil && s.Key != nil {
			return s, count, nil
		}
	}
	return nil, 0, unix.ENOENT
}

// HasCounters reports whether a map has counters in any family.
func (c *Conn) HasCounters(name string) (bool, error) {
	for _, f := range model.Families {
		s, err := retryQuestion(func() (*nft.Set, error) {
			s, _, err := c.Set(name, f)
			return s, err
		})
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return false, addRemedy(err)
		case s.Counters:
			return true, nil
		}
	}
	return false, nil
}

// ReadAll returns the rules of all programs that see packets of IP, as bytecode. What packets have
// left in dynamic sets is not part of them.
func (c *Conn) ReadAll() (*bytecode.Ruleset, error) {
	return Consistent(c, "the rules of all programs", func() (*bytecode.Ruleset, error) {
		all := &bytecode.Ruleset{}
		for _, list := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETRULE} {
			replies, err := c.requestAll(list, anyFamily)
			if err != nil {
				return nil, err
			}
			for _, m := range replies {
				if err := c.addTo(all, m); err != nil {
					return nil, err
				}
			}
		}
		return all, nil
	})
}

func (c *Conn) addTo(all *bytecode.Ruleset, m netlink.Message) error {
	typ := uint16(m.Header.Type) & 0xff
	if err := all.Change(bytecode.Message{Type: typ, Data: m.Data}); err != nil || typ != unix.NFT_MSG_NEWSET || !bytecode.IsIP(m.Data) {
		return err
	}
	a, flags, err := codec.Attributes{m.Data[0], unix.NFNETLINK_V0, 0, 0}, uint32(0), error(nil)
	for set := netlinkio.ReadMessage(m.Data, &err); set.Next(); {
		switch set.Type {
		case unix.NFTA_SET_TABLE:
			a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, string(set.Text()))
		case unix.NFTA_SET_NAME:
			a.Text(unix.NFTA_SET_ELEM_LIST_SET, string(set.Text()))
		case unix.NFTA_SET_FLAGS:
			flags = set.Uint32()
		}
	}
	if err != nil || flags&unix.NFT_SET_EVAL != 0 {
		return err
	}
	replies, err := c.requestAll(unix.NFT_MSG_GETSETELEM, a)
	for i := 0; err == nil && i < len(replies); i++ {
		err = all.Change(bytecode.Message{Type: unix.NFT_MSG_NEWSETELEM, Data: replies[i].Data})
	}
	return err
}
