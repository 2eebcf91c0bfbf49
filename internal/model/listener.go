package model

import (
	"net/netip"
	"slices"
)

// Listener stands for the addresses of this machine, or of one of its interfaces, on which a
// Service of files is served. A source has none of the addresses; what follows the interfaces
// adds them.
type Listener struct {
	Text      string // as it is written, for example eth0:80
	Interface string // empty: all of the machine
	Families  []Family
}

type InterfaceAddress struct {
	Interface string
	Address   netip.Addr
}

// Has reports whether the listener stands for an address: one that other machines may reach.
func (l *Listener) Has(a InterfaceAddress) bool {
	return (l.Interface == "" || l.Interface == a.Interface) && slices.Contains(l.Families, FamilyOf(a.Address)) && a.Address.IsGlobalUnicast()
}

func (s *Service) NeedsAddresses() bool {
	e := s.Extra()
	return len(e.Listeners)+len(e.MasqueradeFrom) > 0
}

// WithAddresses returns a state that is also served on the addresses for which the listeners of
// its Service stand, and that masquerades only from addresses that the machine has.
func (s ServiceState) WithAddresses(all []InterfaceAddress) ServiceState {
	service, external := s.Service.changeExtras(func(x *Extras) {
		x.MasqueradeFrom = slices.DeleteFunc(slices.Clone(x.MasqueradeFrom), func(a netip.Addr) bool { return !hasAddress(all, a) })
	}), s.Service.externalOrZero()
	external.LoadBalancerIPs = slices.Clone(external.LoadBalancerIPs)
	for i := range service.Extra().Listeners {
		for _, a := range all {
			if service.Extra().Listeners[i].Has(a) && !slices.Contains(external.LoadBalancerIPs, a.Address) {
				external.LoadBalancerIPs = append(external.LoadBalancerIPs, a.Address)
			}
		}
	}
	service.External = &external
	s.Service = service
	return s
}

func hasAddress(all []InterfaceAddress, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(i InterfaceAddress) bool { return i.Address == a })
}

// Missing returns the addresses to masquerade from that are none of these.
func (s *Service) Missing(all []InterfaceAddress) (out []netip.Addr) {
	for _, a := range s.Extra().MasqueradeFrom {
		if !hasAddress(all, a) {
			out = append(out, a)
		}
	}
	return out
}

// Idle returns the listeners that stand for none of these addresses.
func (s *Service) Idle(all []InterfaceAddress) (out []Listener) {
	for _, l := range s.Extra().Listeners {
		if !slices.ContainsFunc(all, l.Has) {
			out = append(out, l)
		}
	}
	return out
}
