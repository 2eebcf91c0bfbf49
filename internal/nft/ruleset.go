package nft

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TableName is the name of our table in either family. Nothing outside of
// these two tables is ever written.
const TableName = "nftproxy"

// Delta is a change of rules: parts of our tables before and after it. Both have
// the elements, sets and chains that differ, and the ones that a comparison needs.
type Delta struct {
	Before, After *Ruleset
	// Exchanges are further changes of endpoints, of frontends of which the rulesets have none. The
	// rulesets have the map of them.
	Exchanges []Exchange
	// Complete means that After is all that is wanted. Then Before is empty, and the
	// contents of the kernel take its place.
	Complete bool
}

// FromNothing returns the change to all that is wanted.
func FromNothing(r *Ruleset) Delta { return Delta{Before: &Ruleset{}, After: r, Complete: true} }

// Ruleset is the complete content of our tables.
type Ruleset struct {
	Tables []*Table // at most one for each family, IPv4 first
}

// Table returns the table of family f, or nil.
func (r *Ruleset) Table(f model.Family) *Table {
	for _, t := range r.Tables {
		if t.Family == f {
			return t
		}
	}
	return nil
}

// Table is one nftables table of family ip or ip6.
type Table struct {
	Family  model.Family
	Foreign bool // it is dormant, or has stateful objects or flow tables: we never write that
	Sets    []*Set
	Chains  []*Chain
}

// Set returns the set or map of that name, or nil.
func (t *Table) Set(name string) *Set {
	for _, s := range t.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Chain returns the chain of that name, or nil.
func (t *Table) Chain(name string) *Chain {
	for _, c := range t.Chains {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Datatype is the type of one field of a set's key or of a map's data.
type Datatype uint8

const (
	Address    Datatype = iota // of a frontend or endpoint: ipv4_addr or ipv6_addr, by the table's family
	Source                     // of a client: likewise
	InetProto                  // transport protocol number
	Port                       // inet_service
	ClassID                    // the class of a frontend, or behind a frontend the number of a slot: classid
	Verdicts                   // the data of a verdict map
	PortRange                  // inet_service: the ports from Port to Slot, in an interval map
	RangeID                    // the first port of a range, which names it: classid
	SlotNumber                 // the number of a slot that the rule computes in its key: an integer without a type name

	// EndpointAddress and EndpointPort name an endpoint behind the frontend in
	// the same key.
	EndpointAddress
	EndpointPort

	ClientPort // inet_service: the port of a client
)

// Set is a named set, or a map if it has Data.
type Set struct {
	Name string
	Key  []Datatype
	Data []Datatype // empty: a set
	// Interval sets hold intervals: prefixes in the last of several addresses, ports in
	// a PortRange, and prefixes in the address of a key with neither.
	Interval bool
	// Dynamic maps are filled by the packet path, with timeouts. Their elements are
	// state and not part of a ruleset.
	Dynamic bool
	// Timeless dynamic sets have no timeouts: the kernel removes elements that count
	// connections when there are none.
	Timeless bool
	// Counters of a map count the packets that find an element. The numbers are
	// state and not part of a ruleset.
	Counters bool
	// Limits of the elements are values, see [Value.Limit].
	Limits   LimitType
	Size     uint32    // most elements; zero: no limit
	Elements []Element // sorted by key
}

// Same reports whether two sets have equal declarations.
func (s *Set) Same(o *Set) bool {
	return s.Name == o.Name && slices.Equal(s.Key, o.Key) && slices.Equal(s.Data, o.Data) &&
		s.Interval == o.Interval && s.Dynamic == o.Dynamic && s.Timeless == o.Timeless && s.Counters == o.Counters && s.Limits == o.Limits && s.Size == o.Size
}

func (s *Set) Concat() bool { return len(s.Key) > 1 }

// HasSlots reports whether the key ends with the number of a slot.
func (s *Set) HasSlots() bool {
	return s.Concat() && slices.Contains([]Datatype{ClassID, SlotNumber}, s.Key[len(s.Key)-1])
}

// CountsConnections reports whether the elements count the connections to frontends or to
// endpoints.
func (s *Set) CountsConnections() bool {
	return s.Counters && (RowOf(s.Name).Contents == Endpoints || s.IsOfFrontends())
}

// IsOfFrontends reports whether the set is a map of all frontends, or of those that decide
// otherwise for clients outside of the cluster.
func (s *Set) IsOfFrontends() bool {
	c := RowOf(s.Name).Contents
	return c == Services || c == LocalServices
}

// HasRanges reports whether the key names frontends that are ranges of ports, by their
// first port or with all of them.
func (s *Set) HasRanges() bool {
	return slices.Contains(s.Key, RangeID) || slices.Contains(s.Key, PortRange)
}

func (s *Set) Sort() {
	slices.SortFunc(s.Elements, func(a, b Element) int { return a.Key.Compare(b.Key) })
}

// Find returns the element of a frontend; false: there is none, or no set. The elements must be sorted.
func (s *Set) Find(f model.Frontend) (*Element, bool) {
	if s == nil {
		return nil, false
	}
	i, ok := slices.BinarySearchFunc(s.Elements, FrontendKey(f), func(e Element, k Key) int { return e.Key.Compare(k) })
	if !ok {
		return nil, false
	}
	return &s.Elements[i], true
}

// Prefix returns the address in a key that is of type d, [Address], [Source] or
// [EndpointAddress]: as a prefix where the set holds prefixes, else as a single address.
func (s *Set) Prefix(k Key, d Datatype) netip.Prefix {
	a := k.Address
	if d == Source || d == EndpointAddress {
		a = k.Source
	}
	if s.Interval && d == s.prefixField() {
		return netip.PrefixFrom(a, int(k.Bits))
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// prefixField returns the field of an interval set that is a prefix.
func (s *Set) prefixField() Datatype {
	switch {
	case slices.Index(s.Key, Source) > slices.Index(s.Key, Address):
		return Source
	case slices.Contains(s.Key, PortRange):
		return PortRange
	}
	return Address
}

// Element is a member of a set, or an entry of a map.
type Element struct {
	Key     Key
	Value   Value  // of a map, or the limit
	Comment string // at most [MaxComment] bytes of printable ASCII
}

// Key is the key of an element. Only the fields that the set's key names are
// used; the others are zero. Key is comparable.
type Key struct {
	Address  netip.Addr
	Source   netip.Addr // of the client, or EndpointAddress; in a [Range] the last address
	Bits     uint8      // prefix length of the last address in an interval set, or [Range]
	Protocol model.Protocol
	Port     uint16
	Slot     uint32 // or class, EndpointPort, ClientPort, or the last port of a PortRange: no key has two of them
}

// FrontendKey returns the key of a frontend, or of a range of ports by its first port.
func FrontendKey(f model.Frontend) Key {
	return Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port}
}

func EndpointKey(f model.Frontend, e netip.AddrPort) Key {
	return Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port, Source: e.Addr(), Slot: uint32(e.Port())}
}

// RangeKey returns the key of a range in an interval map of ports.
func RangeKey(f model.Frontend) Key {
	return Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port, Slot: uint32(f.Last)}
}

func ClassKey(c Class) Key { return Key{Slot: uint32(c)} }

// Range in place of a prefix length marks an interval that is no prefix. We write
// none.
const Range = 255

// Compare orders by source, address, protocol, port, slot, then prefix length.
func (k Key) Compare(o Key) int {
	if c := k.Source.Compare(o.Source); c != 0 {
		return c
	}
	if c := k.Address.Compare(o.Address); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Port, o.Port),
		cmp.Compare(k.Slot, o.Slot), cmp.Compare(k.Bits, o.Bits))
}

// Frontend returns the frontend that a key of address, protocol and port names. Of a
// range it has the first port only.
func (k Key) Frontend() model.Frontend {
	return model.Frontend{Address: k.Address, Protocol: k.Protocol, Port: k.Port}
}

func (s *Set) FrontendID(k Key) model.FrontendID {
	return model.FrontendID{Address: k.Address, Protocol: k.Protocol, Port: k.Port, Range: s.HasRanges()}
}

// Value is the value of a key in a map: an endpoint, a class or a verdict, by the
// map's Data.
type Value struct {
	Endpoint netip.AddrPort
	Class    Class
	burst    uint32 // of a limit
	Verdict  Verdict
}

// Class groups frontends by the treatment of their connections: the map [LanesMap] has its
// verdict. nft prints it, and the number of a slot, as two hexadecimal numbers of
// 16 bits, as for a class of traffic control.
type Class uint32

func (c Class) String() string {
	if c == 0 {
		return "none"
	}
	return fmt.Sprintf("%x:%x", uint32(c)>>16, uint32(c)&0xffff)
}

// Hook is where a base chain is attached; zero: not a base chain.
type Hook uint8

const (
	NoHook Hook = iota
	Prerouting
	Input
	Output
	Postrouting
)

// ForeignHook stands for a hook, type or policy that our chains do not have.
const ForeignHook Hook = 255

func (h Hook) String() string {
	return [...]string{"", "prerouting", "input", "output", "postrouting"}[h]
}

// Priorities of our base chains among the nat chains of a hook (4.1, 4.2). Only the
// first chain that translates a connection counts, and of chains with the same
// priority the newest comes first. So ours never have the usual priorities, the
// kernel's NF_IP_PRI_NAT_DST (-100) and NF_IP_PRI_NAT_SRC (100): the order must not
// depend on which program started last.
const (
	PriorityDNAT = -101 // right before foreign chains that translate destinations
	// PriorityUnserved is behind them: an address without a frontend of ours is
	// refused only if no other program serves it.
	PriorityUnserved = -1
	// PriorityEarly is before everything that may translate sources. The kernel
	// accepts nat chains from -199 on.
	PriorityEarly = -199
	PrioritySNAT  = 99 // right before foreign chains that translate sources
)

// PriorityTranslated is of chains with type filter, in prerouting and output: right behind the
// kernel's translation of destinations. There, packets of a connection have the addresses of
// its client and its endpoint, in both directions.
const PriorityTranslated = -99

// PriorityRelay is of the chain that guards the port of the relay, with type filter, behind the
// filters of other programs in the hook input. The one that lets connections pass is right before.
const PriorityRelay = 99

// Chain is a chain of rules. A base chain has policy accept and type nat, which sees the first
// packet of a connection; with Filter it has type filter, which sees all packets.
type Chain struct {
	Name     string
	Hook     Hook
	Filter   bool
	Priority int32 // of a base chain
	Rules    []Rule
}

func (c *Chain) Type() string {
	if c.Filter {
		return "filter"
	}
	return "nat"
}

// Same reports whether two chains have equal declarations.
func (c *Chain) Same(o *Chain) bool {
	return c.Name == o.Name && c.Hook == o.Hook && c.Filter == o.Filter && c.Priority == o.Priority
}

// Rule is a list of statements that are evaluated in order until one does not
// match.
type Rule []Statement

// Exchange is a frontend with one port that gets as many endpoints as it loses. The others stay in
// their slots.
type Exchange struct {
	Frontend  model.Frontend
	Endpoints int // that it has, each in one slot from [FirstSlot] on
	// Out are the endpoints that it loses, and In those that it gets, by their positions in the
	// order that rendering proposes before and after it, ascending. The others have the same order
	// in both.
	Out, In []Position
}

// Position is an endpoint at a position.
type Position struct {
	At       uint32
	Endpoint netip.AddrPort
}
