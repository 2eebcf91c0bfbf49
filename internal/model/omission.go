package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Omission is an endpoint that takes no new connections, and why.
type Omission struct {
	Endpoint netip.AddrPort // port 0: it has no port for the service port
	Reason   string
}

// LeftOut returns the endpoints of a port of a Service that a policy leaves out on a node.
func LeftOut(s *Service, endpoints []Endpoint, node *Node, policy Policy) []Omission {
	selection := NewSelection(s, endpoints, node, policy)
	var out []Omission
	for _, e := range endpoints {
		if why := selection.Reason(e.Host); why != "" {
			out = append(out, Omission{e.Address(), why})
		}
	}
	return out
}

// Reason returns why a host takes no new connections, for people; empty: it does.
func (s Selection) Reason(h *Host) string {
	why := s.Excludes(h)
	switch why {
	case Drained:
		if h.DrainedByOperator() {
			return "drained by nftproxy drain"
		}
		return "its weight is 0"
	case OtherNode:
		return "policy Local, and it is on node " + h.Place.Node()
	case ForOtherNode:
		return fmt.Sprintf("its topology hints are for node %s, this is %s", strings.Join(h.Place.ForNodes(), ", "), s.node.Name)
	case ForOtherZone:
		return fmt.Sprintf("its topology hints are for zone %s, this is %s", strings.Join(h.Place.ForZones(), ", "), s.node.Zone)
	case InOtherZone:
		if zone := h.Place.Zone(); zone != "" {
			return fmt.Sprintf("in zone %s; %s", zone, s.zone)
		}
		return fmt.Sprintf("in no zone; %s", s.zone)
	case StandsBy:
		return s.words.Sprintf("stands by: endpoints of priority %d are usable", s.priority)
	}
	return map[Exclusion]string{
		NoNode:     "policy Local, and its node is not known",
		NotReady:   "not ready",
		NotServing: "terminating, and no longer serving",
		Failing:    "its health check fails",
		NotNeeded:  "terminating, and others are ready",
	}[why]
}

// NotCandidates returns the entries of the slices of a Service that are not endpoints of
// a service port in a family, with the reason: endpoints of the other family, further
// records of an address, and hosts without the port.
func NotCandidates(port PortName, f Family, ss []*EndpointSlice) []Omission {
	records := make(map[netip.AddrPort]int)
	served := make(map[netip.Addr]bool)
	for _, s := range ss {
		for _, p := range s.Ports {
			for i := range s.Hosts {
				if p.Name == port.Port && p.Protocol == port.Protocol {
					records[netip.AddrPortFrom(s.Hosts[i].Address, p.Port)]++
					served[s.Hosts[i].Address] = true
				}
			}
		}
	}
	var other, more []Omission
	for _, of := range Families {
		for _, e := range Endpoints(port, of, ss) {
			if n := records[e.Address()]; of != f {
				other = append(other, Omission{e.Address(), fmt.Sprintf("%s, and the frontend is %s", of, f)})
			} else if n > 1 {
				more = append(more, Omission{e.Address(), fmt.Sprintf("%d of %d records of it: the best one counts", n-1, n)})
			}
		}
	}
	if port.OfRange() { // has every host
		return other
	}
	return slices.Concat(other, more, withoutPort(port, f, ss, served))
}

func withoutPort(port PortName, f Family, ss []*EndpointSlice, served map[netip.Addr]bool) []Omission {
	var out []Omission
	for _, s := range ss {
		for i := range s.Hosts {
			if a := s.Hosts[i].Address; s.Family == f && !served[a] {
				served[a] = true
				out = append(out, Omission{netip.AddrPortFrom(a, 0), s.describeLack(port)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Omission) int { return a.Endpoint.Compare(b.Endpoint) })
	return out
}

func (s *EndpointSlice) describeLack(port PortName) string {
	has := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		has[i] = portLabel(p.Name, p.Protocol)
	}
	if len(has) == 0 {
		has = []string{"none"}
	}
	return fmt.Sprintf("EndpointSlice %s has no port %s; its ports: %s", s.Name, portLabel(port.Port, port.Protocol), strings.Join(has, ", "))
}

func portLabel(name string, p Protocol) string {
	return fmt.Sprintf("%q (%s)", name, strings.ToUpper(p.String()))
}
