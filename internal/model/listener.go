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

// InterfaceAddress is an address of an interface.
type InterfaceAddress struct {
	Interface string
	Address   netip.Addr
}

// Has reports whether the listener stands for an address: one that other machines may reach.
func (l *Listener) Has(a InterfaceAddress) bool {
	return (l.Interface == "" || l.Interface == a.Interface) && slices.Contains(l.Families, FamilyOf(a.Address)) && a.Address.IsGlobalUnicast()
}

// WithListeners returns a state that is also served on the addresses for which the listeners of
// its Service stand.
func (s ServiceState) WithListeners(all []InterfaceAddress) ServiceState {
	service, external := *s.Service, s.Service.external()
	external.LoadBalancerIPs = slices.Clone(external.LoadBalancerIPs)
	for i := range service.Extra().Listeners {
		for _, a := range all {
			if service.Extra().Listeners[i].Has(a) && !slices.Contains(external.LoadBalancerIPs, a.Address) {
				external.LoadBalancerIPs = append(external.LoadBalancerIPs, a.Address)
			}
		}
	}
	service.External = &external
	s.Service = &service
	return s
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
