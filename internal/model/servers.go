package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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

type NamedAddress struct {
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port,omitempty"`     // of an SRV record
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

// WithNames returns a state with the endpoints of the names of its Service, which have the
// given addresses, in their order.
func (s ServiceState) WithNames(addresses [][]NamedAddress) ServiceState {
	s.Slices = slices.Clip(s.Slices)
	s.Service = s.Service.changeExtras(func(x *Extras) {
		x.Names = slices.Clone(x.Names)
		for i := range x.Names {
			x.Names[i].Addresses = addresses[i]
			s.Slices = append(s.Slices, x.Names[i].slicesOf(s.Service.Name)...)
		}
	})
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
