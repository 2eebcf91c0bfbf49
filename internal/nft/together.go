package nft

import (
	"cmp"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// The frontends of a Service at an address are a group if they bind a client together. A binding
// is the number of the server in the group, in the low bits of a class whose other bits are the
// group. The group is the lowest port of the Service, with its protocol: no two Services have the
// same one at an address.
const (
	groupBits     = 14                    // of the number of the server
	groupProtocol = 1 << (16 + groupBits) // of the protocol by its place in model.Protocols
	groupMask     = Class(1<<32 - 1<<groupBits)
)

// GroupOf returns the class of the group of a Service with some ports.
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

// bindsTogether reports whether a statement binds a client for a group.
func bindsTogether(s Statement) bool {
	note, ok := s.(Note)
	return ok && note.Map == SharedAffinityMap
}
