package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NamedServer is a server of a Service of files by a name of DNS: every address of the name
// serves. A source has no addresses; what follows DNS adds them.
type NamedServer struct {
	Text string // as it is written, for example app.example.com:8080
	// Name is in lower case. With a final dot, no domain is searched.
	Name string
	// Records reports that SRV records are asked for, which have ports, weights and priorities.
	Records bool
	// Ports are the ones of the Service, each with the port of the server; zero: of its record.
	Ports    []EndpointPort
	Weight   uint16
	Priority uint8
	Drain    bool
	// Addresses are the usable ones of the last answer, sorted.
	Addresses []NamedAddress
}

// NamedAddress is an address that a name has.
type NamedAddress struct {
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port,omitempty"`     // zero, unless it comes from an SRV record
	Weight   uint16     `json:"weight,omitempty"`   // likewise
	Priority uint8      `json:"priority,omitempty"` // likewise
}

// Compare orders by address, then port.
func (a NamedAddress) Compare(o NamedAddress) int {
	return cmp.Or(a.Address.Compare(o.Address), cmp.Compare(a.Port, o.Port), cmp.Compare(a.Priority, o.Priority), cmp.Compare(o.Weight, a.Weight))
}

// NameOf returns the name of DNS that has an address of an endpoint, with its port if records
// do not give that; empty: none has.
func (s *Service) NameOf(a netip.Addr) string {
	for i := range s.Extra().Names {
		n := &s.Extra().Names[i]
		if slices.ContainsFunc(n.Addresses, func(o NamedAddress) bool { return o.Address == a }) {
			return n.Label()
		}
	}
	return ""
}

// Label returns the name without the final dot.
func (n *NamedServer) Label() string { return strings.TrimSuffix(n.Name, ".") }

// Listens reports whether clients dial the Service over a family.
func (s *Service) Listens(f Family) bool {
	_, ok := s.primaryIn(f)
	return ok
}

// WithNames returns a state with the endpoints of the names of its Service, which have the
// given addresses, in their order.
func (s ServiceState) WithNames(addresses [][]NamedAddress) ServiceState {
	extras := *s.Service.Extra()
	extras.Names = slices.Clone(extras.Names)
	s.Slices = slices.Clip(s.Slices)
	for i := range extras.Names {
		extras.Names[i].Addresses = addresses[i]
		s.Slices = append(s.Slices, extras.Names[i].slicesOf(s.Service.Name)...)
	}
	service := *s.Service
	service.Extras = &extras
	s.Service = &service
	return s
}

func (n *NamedServer) slicesOf(name ServiceName) (out []*EndpointSlice) {
	for _, a := range n.Addresses {
		of := n.Label() + "-" + strings.ToLower(FamilyOf(a.Address).String())
		if a.Port != 0 {
			of += "-" + strconv.Itoa(int(a.Port))
		}
		i := slices.IndexFunc(out, func(s *EndpointSlice) bool { return s.Name == of })
		if i < 0 {
			i = len(out)
			out = append(out, &EndpointSlice{Namespace: name.Namespace, Name: of, Service: name.Name, Family: FamilyOf(a.Address), Ports: n.portsOf(a.Port)})
		}
		h := Host{Address: a.Address, Ready: true, Serving: true, Drain: n.Drain, Weight: n.Weight, Priority: n.Priority}
		if n.Records {
			h.Weight, h.Priority = a.Weight, a.Priority
		}
		if h.Drain {
			h.Weight = 0
		}
		out[i].Hosts = append(out[i].Hosts, h)
	}
	return out
}

func (n *NamedServer) portsOf(record uint16) []EndpointPort {
	if !n.Records {
		return n.Ports
	}
	out := slices.Clone(n.Ports)
	for i := range out {
		out[i].Port = record
	}
	return out
}

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

// NeedsAddresses reports whether the Service depends on addresses of this machine.
func (s *Service) NeedsAddresses() bool {
	e := s.Extra()
	return len(e.Listeners)+len(e.MasqueradeFrom) > 0
}

// WithAddresses returns a state that is also served on the addresses for which the listeners of
// its Service stand, and that masquerades only from addresses that the machine has.
func (s ServiceState) WithAddresses(all []InterfaceAddress) ServiceState {
	service, external := *s.Service, s.Service.externalOrZero()
	external.LoadBalancerIPs = slices.Clone(external.LoadBalancerIPs)
	for i := range service.Extra().Listeners {
		for _, a := range all {
			if service.Extra().Listeners[i].Has(a) && !slices.Contains(external.LoadBalancerIPs, a.Address) {
				external.LoadBalancerIPs = append(external.LoadBalancerIPs, a.Address)
			}
		}
	}
	service.External = &external
	if missing := service.Missing(all); len(missing) > 0 {
		extras := *service.Extras
		extras.MasqueradeFrom = slices.DeleteFunc(slices.Clone(extras.MasqueradeFrom), func(a netip.Addr) bool { return slices.Contains(missing, a) })
		service.Extras = &extras
	}
	s.Service = &service
	return s
}

// Missing returns the addresses to masquerade from that are none of these.
func (s *Service) Missing(all []InterfaceAddress) (out []netip.Addr) {
	for _, a := range s.Extra().MasqueradeFrom {
		if !slices.ContainsFunc(all, func(i InterfaceAddress) bool { return i.Address == a }) {
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

// StartParts is how many parts a weight has while its endpoint starts slowly (3.68). An endpoint
// begins with one of them, and gets another one in each of StartParts-1 steps of equal length.
const StartParts = 10

// Starting is an endpoint of a Service that starts slowly.
type Starting struct {
	Endpoint netip.AddrPort // with port 0 for all ports of a range
	Part     uint8          // of its weight, from 1 to StartParts-1
	Full     time.Time      // when it has its whole weight
}

// start returns the entry of an endpoint, or nil. One of a range may have the entry for all
// ports: that is never newer than the entry of a port.
func (x *Extras) start(e Endpoint) *Starting {
	for _, a := range [...]netip.AddrPort{e.Address(), netip.AddrPortFrom(e.Host.Address, 0)} {
		i, found := slices.BinarySearchFunc(x.Starting, a, func(s Starting, a netip.AddrPort) int { return s.Endpoint.Compare(a) })
		if found {
			return &x.Starting[i]
		}
	}
	return nil
}

func (x *Extras) weightPart(e Endpoint) uint8 {
	if s := x.start(e); s != nil {
		return s.Part
	}
	return StartParts
}

// setParts gives the endpoints of choices their parts. If all have the same one, none has an
// effect, and the rules are as without: a server that is alone takes all connections.
func (x *Extras) setParts(choices ...*[]Endpoint) {
	if len(x.Starting) == 0 {
		return
	}
	first, differ := uint8(0), false
	for _, c := range choices {
		for _, e := range *c {
			part := x.weightPart(e)
			differ = differ || first != 0 && part != first
			first = part
		}
	}
	if !differ {
		return
	}
	for _, c := range choices {
		*c = slices.Clone(*c)
		for i := range *c {
			(*c)[i].Part = x.weightPart((*c)[i])
		}
	}
}

// Start returns the entry of an endpoint of a choice whose share is smaller because it starts
// slowly, or nil.
func (s *Service) Start(e Endpoint) *Starting {
	if e.Part == 0 || e.Part == StartParts {
		return nil
	}
	return s.Extra().start(e)
}

// WithStarting returns a state whose Service has endpoints that start slowly, sorted by address.
func (s ServiceState) WithStarting(all []Starting) ServiceState {
	service, extras := *s.Service, *s.Service.Extra()
	extras.Starting = all
	service.Extras = &extras
	s.Service = &service
	return s
}
