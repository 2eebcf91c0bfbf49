package drain

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Edit returns the state of a Service in which the endpoints of the list are drained: an
// edited copy, or the state itself if the list has none of its endpoints.
func (l List) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	if !l.Concerns(name, state) {
		return state
	}
	var edited []*model.EndpointSlice
	for _, s := range state.Slices {
		edited = append(edited, l.slice(name, s, hasRanges(state.Service))...)
	}
	state.Slices = edited
	return state
}

// EditSnapshot returns a snapshot in which the endpoints of the list are drained.
func (l List) EditSnapshot(s *model.Snapshot) *model.Snapshot {
	if len(l) == 0 {
		return s
	}
	return s.Edit(l.Edit)
}

func hasRanges(s *model.Service) bool { return s != nil && len(s.Extra().Ranges) > 0 }

// Concerns reports whether the list has an address of a Service.
func (l List) Concerns(name model.ServiceName, state model.ServiceState) bool {
	return len(l) > 0 && slices.ContainsFunc(state.Slices, func(s *model.EndpointSlice) bool { return l.has(name, s) })
}

func (l List) has(name model.ServiceName, s *model.EndpointSlice) bool {
	for i := range s.Hosts {
		if len(l.of(name, s.Hosts[i].Address)) > 0 {
			return true
		}
	}
	return false
}

// of returns the entries of an address that hold for a Service.
func (l List) of(name model.ServiceName, a netip.Addr) List {
	first, found := slices.BinarySearchFunc(l, a, func(e Entry, a netip.Addr) int { return e.Address.Compare(a) })
	if !found {
		return nil
	}
	n := first
	for n < len(l) && l[n].Address == a {
		n++
	}
	same := l[first:n]
	none := func(e Entry) bool { return e.Service != model.ServiceName{} && e.Service != name }
	if slices.ContainsFunc(same, none) {
		same = slices.DeleteFunc(slices.Clone(same), none)
	}
	return same
}

// slice returns a slice with drained hosts. A host is drained for all ports of its slice:
// ports with other drained hosts get a slice of their own. Ranges of ports have the best
// record of a host (1.57), of any port: if only entries with a port name the host, the
// best record is one in a slice without ports.
func (l List) slice(name model.ServiceName, s *model.EndpointSlice, ranges bool) (out []*model.EndpointSlice) {
	if !l.has(name, s) {
		return []*model.EndpointSlice{s}
	}
	var groups [][]int // drained hosts of the slices in out
	group := func(port uint16) *model.EndpointSlice {
		drained := l.hosts(name, s, port)
		i := slices.IndexFunc(groups, func(g []int) bool { return slices.Equal(g, drained) })
		if i < 0 {
			i = len(groups)
			groups, out = append(groups, drained), append(out, drainHosts(s, drained))
		}
		return out[i]
	}
	for _, p := range s.Ports {
		edited := group(p.Port)
		edited.Ports = append(edited.Ports, p)
	}
	if ranges || len(s.Ports) == 0 {
		group(0)
	}
	return out
}

// hosts returns the indices of the hosts of a slice that are drained at a port, or, for
// port 0, as a whole.
func (l List) hosts(name model.ServiceName, s *model.EndpointSlice, port uint16) (out []int) {
	for i := range s.Hosts {
		if slices.ContainsFunc(l.of(name, s.Hosts[i].Address), func(e Entry) bool { return e.Port == 0 || e.Port == port }) {
			out = append(out, i)
		}
	}
	return out
}

// drainHosts returns a copy of a slice without ports, in which these hosts are drained.
func drainHosts(s *model.EndpointSlice, hosts []int) *model.EndpointSlice {
	edited := *s
	edited.Ports = nil
	if len(hosts) > 0 {
		edited.Hosts = slices.Clone(s.Hosts)
		for _, i := range hosts {
			edited.Hosts[i].DrainByOperator()
		}
	}
	return &edited
}
