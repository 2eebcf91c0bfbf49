package drain

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// serverOf returns what identifies the server that a host of a slice is.
func serverOf(s *model.Service, slice *model.EndpointSlice, host int) Server {
	return Server{slice.Hosts[host].Address, portOf(s, slice)}
}

// portOf returns the one port that all ports and ranges of a Balance lead to at the hosts of a
// slice; zero: there are several, or these hosts keep the ports of a range.
func portOf(s *model.Service, slice *model.EndpointSlice) uint16 {
	var port uint16
	for i, p := range slice.Ports {
		if i > 0 && p.Port != port {
			return 0
		}
		port = p.Port
	}
	for i, r := range s.Extra().Ranges {
		target := r.Target
		if target == 0 && r.Last == 0 {
			target = r.Port
		}
		if target == 0 || (i > 0 || len(slice.Ports) > 0) && target != port {
			return 0
		}
		port = target
	}
	return port
}

// weightOf returns the weight of a host as the file gives it.
func weightOf(h *model.Host) int {
	if h.Drain && !h.DrainedByOperator() {
		return 0
	}
	return max(1, int(h.Weight))
}

func setWeight(h *model.Host, weight int) { h.Weight, h.Drain = uint16(weight), weight == 0 }

// find returns the host of a server in slices, or -1.
func find(s model.ServiceState, server Server) (slice, host int) {
	for i, in := range s.Slices {
		for j := range in.Hosts {
			if in.Hosts[j].Address == server.Address && serverOf(s.Service, in, j) == server {
				return i, j
			}
		}
	}
	return -1, -1
}

// Edit returns the state of a Balance with the changes that hold, and the others: those whose
// server is in the file in another way than when they were made. The file wins then.
func (l Changes) Edit(name model.ServiceName, state model.ServiceState) (edited model.ServiceState, ended []Change) {
	all := l[name]
	if len(all) == 0 || state.Service == nil {
		return state, nil // a Balance without a file may return
	}
	edited = state
	for _, c := range all {
		i, j := find(state, c.Server)
		in := absent
		if i >= 0 {
			in = weightOf(&state.Slices[i].Hosts[j])
		}
		if in != c.File || c.File == absent && fits(state, c.Server) != nil {
			ended = append(ended, c)
			continue
		}
		edited.Slices = c.apply(state, edited.Slices)
	}
	return edited, ended
}

// apply returns slices with the change. state is the one of the file.
func (c Change) apply(state model.ServiceState, all []*model.EndpointSlice) []*model.EndpointSlice {
	if c.File == absent {
		return append(slices.Clip(all), c.slice(state.Service))
	}
	i, j := find(model.ServiceState{Service: state.Service, Slices: all}, c.Server)
	changed := *all[i]
	changed.Hosts = slices.Clone(changed.Hosts)
	if c.Weight == absent {
		changed.Hosts = slices.Delete(changed.Hosts, j, j+1)
	} else {
		setWeight(&changed.Hosts[j], c.Weight)
	}
	out := slices.Clone(all)
	out[i] = &changed
	return out
}

func (c Change) slice(s *model.Service) *model.EndpointSlice {
	out := &model.EndpointSlice{
		Namespace: s.Name.Namespace, Name: s.Name.Name + "-runtime", Service: s.Name.Name,
		Family: model.FamilyOf(c.Address), Ports: endpointPorts(s, c.Port),
		Hosts: []model.Host{{Address: c.Address, Ready: true, Serving: true}},
	}
	setWeight(&out.Hosts[0], c.Weight)
	return out
}

// endpointPorts returns the ports of a server that takes all connections at a port; zero: at the
// ports of clients.
func endpointPorts(s *model.Service, port uint16) (out []model.EndpointPort) {
	for _, p := range s.Ports {
		to := port
		if to == 0 {
			to = p.Port
		}
		out = append(out, model.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: to})
	}
	return out
}

// EditSnapshot returns a snapshot with the changes that hold, and these.
func (l Changes) EditSnapshot(s *model.Snapshot) (edited *model.Snapshot, held Changes) {
	if len(l) == 0 {
		return s, nil
	}
	held = make(Changes)
	return s.Edit(func(name model.ServiceName, state model.ServiceState) model.ServiceState {
		edited, ended := l.Edit(name, state)
		if rest := without(l[name], ended); len(rest) > 0 {
			held[name] = rest
		}
		return edited
	}), held
}

func without(all, ended []Change) []Change {
	return slices.DeleteFunc(slices.Clone(all), func(c Change) bool {
		return slices.ContainsFunc(ended, func(e Change) bool { return e.Server == c.Server })
	})
}

// listens reports whether a Balance listens on an address of a family.
func listens(s *model.Service, a netip.Addr) bool {
	if s.External == nil {
		return false
	}
	return slices.ContainsFunc(s.External.LoadBalancerIPs, func(l netip.Addr) bool { return model.FamilyOf(l) == model.FamilyOf(a) })
}
