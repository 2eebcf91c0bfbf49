package nft

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Affinity says how clients of a frontend with session affinity are bound to their
// endpoints. It is comparable; the zero value is none.
type Affinity struct {
	Timeout  time.Duration // of a binding: whole seconds, at most a day
	Protocol model.Protocol
	// Local is for clients outside of the cluster of a frontend with policy Local. They
	// reach the endpoints of this node, and other clients endpoints of the cluster, so neither
	// the bindings of the others count for them, nor bindings from before a change of policy.
	Local bool
	// Shared binds a client for all frontends of a group, in a map of its own.
	Shared bool
	Shape  Shape // of the frontend: [OfPort] or [OfNode]
}

// Parts of the class of an affinity, which nft prints as two hexadecimal numbers of 16
// bits: the seconds are the second one, with the last digit of the first one.
const (
	affinitySeconds  = 1<<17 - 1
	affinityProtocol = 1 << 20 // of the protocol by its place in model.Protocols: up to 3
	affinityLocal    = 1 << 22
	affinityOnNode   = 1 << 24
	affinityShared   = 1 << 25
)

// Class returns the class of frontends with this affinity in [AffinityTimeoutsMap]. No two
// have the same, and none has 0.
func (a Affinity) Class() Class {
	c := uint32(a.Timeout / time.Second)
	c |= uint32(max(0, slices.Index(model.Protocols[:], a.Protocol))) * affinityProtocol
	if a.Local {
		c |= affinityLocal
	}
	if a.Shape == OfNode {
		c |= affinityOnNode
	}
	if a.Shared {
		c |= affinityShared
	}
	return Class(c)
}

func affinityOf(c Class) Affinity {
	protocol := int(c/affinityProtocol) % (len(model.Protocols) + 1)
	a := Affinity{Timeout: time.Duration(c&affinitySeconds) * time.Second, Local: c&affinityLocal != 0, Shared: c&affinityShared != 0}
	if c&affinityOnNode != 0 {
		a.Shape = OfNode
	}
	if protocol < len(model.Protocols) {
		a.Protocol = model.Protocols[protocol]
	}
	return a
}

func (a Affinity) Bindings() string {
	switch {
	case a.Shared:
		return SharedAffinityMap
	case a.Local:
		return LocalAffinityMap
	}
	return AffinityMap
}

// Binder returns the name of the chain that binds clients, for example "bind-tcp-10800".
func (a Affinity) Binder() string {
	return a.Shape.Chain(prefixLike(a.Bindings(), "bind-"+a.Protocol.String()+"-"+strconv.Itoa(int(a.Timeout/time.Second))))
}

// AffinityTimeout returns how long a frontend remembers its clients in one of the
// affinity maps, if it does.
func (t *Table) AffinityTimeout(bindings string, f model.Frontend) (timeout time.Duration, ok bool) {
	if t.Set(BindersMap) == nil {
		return t.formerTimeout(bindings, f)
	}
	e, ok := t.Set(TimeoutsOf(bindings)).Find(f)
	if !ok {
		return 0, false
	}
	return affinityOf(e.Value.Class).Timeout, true
}

// AffinityTimeouts returns how long the frontends with affinity remember their clients.
func (t *Table) AffinityTimeouts() map[model.Frontend]time.Duration {
	out := make(map[model.Frontend]time.Duration)
	if t.Set(BindersMap) == nil {
		t.eachFormer(func(remember Update, in *Set) {
			for i := range in.Elements {
				out[in.Elements[i].Key.Frontend()] = remember.Timeout
			}
		})
		return out
	}
	for _, bindings := range AffinityMaps {
		s := t.Set(TimeoutsOf(bindings))
		if s == nil {
			continue
		}
		for i := range s.Elements {
			out[s.Elements[i].Key.Frontend()] = affinityOf(s.Elements[i].Value.Class).Timeout
		}
	}
	return out
}

// formerTimeout returns the timeout in a table of version 0.1, which has a set of frontends
// for each.
func (t *Table) formerTimeout(bindings string, f model.Frontend) (timeout time.Duration, ok bool) {
	t.eachFormer(func(remember Update, in *Set) {
		if _, has := in.Find(f); has && remember.Set == bindings {
			timeout, ok = remember.Timeout, true
		}
	})
	return timeout, ok
}

// FormerAffinity reports whether a set has the frontends with one timeout, in a table of
// version 0.1.
func (t *Table) FormerAffinity(set string) (is bool) {
	t.eachFormer(func(_ Update, in *Set) { is = is || in.Name == set })
	return is
}

// eachFormer calls do for each rule such as "... @affinity-10800 goto bind-10800" with how
// that chain remembers the clients of the frontends in the set.
func (t *Table) eachFormer(do func(Update, *Set)) {
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if len(r) != 3 {
				continue
			}
			in, _ := r[1].(InSet)
			v, _ := r[2].(Verdict)
			set, chain := t.Set(in.Set), t.Chain(v.Chain)
			if set == nil || chain == nil {
				continue
			}
			if remember, ok := findRemember(chain); ok {
				do(remember, set)
			}
		}
	}
}

func findRemember(c *Chain) (Update, bool) {
	for _, s := range slices.Concat(c.Rules...) {
		if u, ok := s.(Update); ok && u.Remembers() {
			return u, true
		}
	}
	return Update{}, false
}

// The frontends of a Service at an address are a group if they bind a client together. A binding
// is the number of the server in the group, in the low bits of a class whose other bits are the
// group. The group is the lowest port of the Service, with its protocol: no two Services have the
// same one at an address.
const (
	groupBits     = 14                    // of the number of the server
	groupProtocol = 1 << (16 + groupBits) // of the protocol by its place in model.Protocols
	groupMask     = Class(1<<32 - 1<<groupBits)
)

func GroupOf(ports []model.ServicePort) Class {
	p := slices.MinFunc(ports, func(a, b model.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	protocol := max(0, slices.Index(model.Protocols[:], p.Protocol))
	return Class(protocol*groupProtocol) | Class(p.Port)<<groupBits
}

// Server returns the class of a server in a group by its number.
func (c Class) Server(number uint16) Class { return c | Class(number) }

// Group returns the class of the group of a server.
func (c Class) Group() Class { return c & groupMask }

// BoundServer returns the frontend at the lowest port of the group that binds a client, and the
// number of its server. e is an element of [SharedAffinityMap].
func BoundServer(e *Element) (model.Frontend, uint16) {
	c := Class(e.Key.Slot)
	f := model.Frontend{Address: e.Key.Address, Port: uint16(c >> groupBits)}
	if i := int(c / groupProtocol); i < len(model.Protocols) {
		f.Protocol = model.Protocols[i]
	}
	return f, uint16(e.Value.Class &^ groupMask)
}

// ClientKey returns the key of a client of a frontend in a map of clients, if the frontend
// has an affinity that the map is for.
func (t *Table) ClientKey(bindings string, f model.Frontend, k Key) (Key, bool) {
	if bindings != SharedAffinityMap {
		return k, true
	}
	if e, ok := t.Set(GroupsMap).Find(f); ok {
		return Key{Address: f.Address, Slot: uint32(e.Value.Class), Source: k.Source}, true
	}
	return Key{}, false
}

// GroupTimeouts returns how long groups of frontends remember their clients, by the address and
// the class of the group.
func (t *Table) GroupTimeouts() map[Key]time.Duration {
	groups, out := t.Set(GroupsMap), make(map[Key]time.Duration)
	if groups == nil {
		return out
	}
	for i := range groups.Elements {
		e := &groups.Elements[i]
		if timeout, ok := t.AffinityTimeout(SharedAffinityMap, e.Key.Frontend()); ok {
			out[Key{Address: e.Key.Address, Slot: uint32(e.Value.Class)}] = timeout
		}
	}
	return out
}
