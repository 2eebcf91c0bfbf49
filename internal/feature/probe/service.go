package probe

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"
	"unique"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

type service struct {
	name    model.ServiceName
	state   model.ServiceState // as it was given
	members []member           // sorted by address
	failing int                // members
}

type member struct {
	address netip.Addr
	target  *target
}

func (s *service) words() words.Vocabulary {
	return words.Of(s.state.Service != nil && s.state.Service.Balance)
}

// words are the words for the Services with a check. e.mu is locked.
func (e *Engine) words() words.Vocabulary {
	balances := 0
	for _, s := range e.services {
		if s.words() == words.Balance {
			balances++
		}
	}
	return words.Among(len(e.services), balances)
}

func (s *service) find(a netip.Addr) *target {
	if s == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(s.members, a, func(m member, a netip.Addr) int { return m.address.Compare(a) })
	if !ok {
		return nil
	}
	return s.members[i].target
}

// Edit implements the interface of editors: it returns the state with the endpoints that
// fail. Services that are new, or have another check or other endpoints, are followed
// from now on.
func (e *Engine) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.services[name]
	if state.Service == nil || state.Service.Check == nil {
		if s != nil {
			e.serve(name, s.state.Service, nil)
			e.follow(s, nil)
			if delete(e.services, name); len(e.services) == 0 {
				e.empty()
			}
		}
		return state
	}
	if s == nil {
		s = &service{name: name}
		e.services[name] = s
	}
	if s.state.Service != state.Service || !slices.Equal(s.state.Slices, state.Slices) {
		e.serve(name, s.state.Service, state.Service)
		s.state = state
		e.follow(s, targetsOf(name, state))
		if state.Service.Check.Type == model.CheckPassive {
			e.spare(s, time.Now())
		}
	}
	return s.mark(state)
}

// serve replaces the frontends of a Service, except for NodePorts.
func (e *Engine) serve(name model.ServiceName, before, now *model.Service) {
	for f := range frontendsOf(before) {
		if e.frontends[f] == name {
			delete(e.frontends, f)
		}
	}
	for f := range frontendsOf(now) {
		e.frontends[f] = name
	}
}

// frontendsOf returns the frontends of a Service, which may be nil.
func frontendsOf(s *model.Service) iter.Seq[model.Frontend] {
	return func(yield func(model.Frontend) bool) {
		if s == nil {
			return
		}
		addresses := s.ClusterIPs
		if s.External != nil {
			addresses = slices.Concat(addresses, s.External.ExternalIPs, s.External.LoadBalancerIPs)
		}
		for _, a := range addresses {
			for _, p := range s.Ports {
				if !yield(model.Frontend{Address: a, Protocol: p.Protocol, Port: p.Port}) {
					return
				}
			}
		}
	}
}

// mark returns the state with the endpoints that fail. It copies only slices that have
// one.
func (s *service) mark(state model.ServiceState) model.ServiceState {
	if s.failing == 0 {
		return state
	}
	copied := false
	for i, slice := range state.Slices {
		var hosts []model.Host
		for j := range slice.Hosts {
			if t := s.find(slice.Hosts[j].Address); t == nil || t.healthy {
				continue
			}
			if hosts == nil {
				hosts = slices.Clone(slice.Hosts)
			}
			hosts[j].Failing = true
		}
		if hosts == nil {
			continue
		}
		if !copied {
			state.Slices, copied = slices.Clone(state.Slices), true
		}
		edited := *slice
		edited.Hosts = hosts
		state.Slices[i] = &edited
	}
	return state
}

type addressed struct {
	address netip.Addr
	key     targetKey
}

// follow replaces the targets of a Service. The result of an address stays.
func (e *Engine) follow(s *service, now []addressed) {
	start := time.Now()
	before := s.members
	s.members = make([]member, 0, len(now))
	for _, a := range now {
		for len(before) > 0 && before[0].address.Less(a.address) {
			e.release(before[0].target, s)
			before = before[1:]
		}
		var old *target
		if len(before) > 0 && before[0].address == a.address {
			old, before = before[0].target, before[1:]
		}
		if old != nil && old.targetKey == a.key {
			s.members = append(s.members, member{a.address, old})
			continue
		}
		s.members = append(s.members, member{a.address, e.acquire(a.key, s, old, start)})
		if old != nil {
			e.release(old, s)
		}
	}
	for _, m := range before {
		e.release(m.target, s)
	}
}

// targetsOf returns the targets of a Service, sorted by address, each once.
func targetsOf(name model.ServiceName, state model.ServiceState) (out []addressed) {
	type candidate struct {
		addressed
		rank int
	}
	var all []candidate
	how := identify(name, state.Service.Check)
	for _, slice := range state.Slices {
		rank, port, protocol := portOf(state.Service, slice)
		if port == 0 {
			continue
		}
		for i := range slice.Hosts {
			if h := &slice.Hosts[i]; h.Ready || h.Terminating && h.Serving {
				all = append(all, candidate{addressed{h.Address, targetKey{netip.AddrPortFrom(h.Address, port), protocol, how}}, rank})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.rank, b.rank), cmp.Compare(a.key.address.Port(), b.key.address.Port()))
	})
	all = slices.CompactFunc(all, func(a, b candidate) bool { return a.address == b.address })
	out = make([]addressed, len(all))
	for i := range all {
		out[i] = all[i].addressed
	}
	return out
}

// portOf returns where the hosts of a slice are checked: at the port that the check
// names, or else at the target of the first port of the Service that fits the check and
// that the slice has. The protocol is zero if the check names the port, and the port is zero
// if none fits.
func portOf(s *model.Service, slice *model.EndpointSlice) (rank int, port uint16, protocol model.Protocol) {
	if s.Check.Port != 0 {
		return 0, s.Check.Port, 0
	}
	for i, p := range s.Ports {
		if !s.Check.Type.Fits(p.Protocol) {
			continue
		}
		for _, of := range slice.Ports {
			if of.Name == p.Name && of.Protocol == p.Protocol {
				return i, of.Port, p.Protocol
			}
		}
	}
	return 0, 0, 0
}

// identify returns what checks have in common that are made in the same way.
func identify(name model.ServiceName, c *model.Check) unique.Handle[string] {
	same := *c
	same.AllFailing, same.HTTP, same.Port = 0, nil, 0
	key := fmt.Sprintf("%#v", same)
	if c.HTTP != nil {
		key += fmt.Sprintf("%#v", *c.HTTP)
	}
	if c.Type == model.CheckExec {
		key += name.String()
	}
	return unique.Make(key)
}
