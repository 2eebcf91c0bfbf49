package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Name is a question about a Service by its name.
type Name struct {
	Protocol string // as given; empty: any
	Service  string // namespace/name, or name
	Port     string // name or number; empty: the first one
}

// ParseName parses NAMESPACE/NAME or NAME, with :PORT or without. It returns false for an
// address, and for what can be no name.
func ParseName(protocol, target string) (Name, bool) {
	service, port, hasPort := strings.Cut(target, ":")
	if strings.ContainsAny(port, ":/") || hasPort && port == "" || service == "" || strings.ContainsAny(service, "[]") {
		return Name{}, false
	}
	if _, err := netip.ParseAddr(service); err == nil {
		return Name{}, false
	}
	namespace, name, qualified := strings.Cut(service, "/")
	if namespace == "" || qualified && (name == "" || strings.Contains(name, "/")) {
		return Name{}, false
	}
	if !qualified && strings.Contains(service, ".") { // a DNS name, or a malformed address
		return Name{}, false
	}
	return Name{protocol, service, port}, true
}

// Packet returns the packet to ask about among the frontends of the Service: to its
// ClusterIP over IPv4, or of the family that is preferred; without ClusterIP, to another
// address. The remarks say what else could be meant.
func (n Name) Packet(in words.Vocabulary, all []served.Named, prefer model.Family) (p Packet, remarks []string, err error) {
	if isICMP(n.Protocol) {
		return n.pingPacket(in, all, prefer)
	}
	candidates, err := n.findCandidates(all)
	if err != nil {
		return p, nil, err
	}
	slices.SortStableFunc(candidates, func(a, b served.Named) int {
		isOther := func(s served.Named) bool { return model.FamilyOf(s.Frontend.Address) != prefer }
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), model.CompareBool(a.Frontend.IsRange(), b.Frontend.IsRange()), model.CompareBool(isOther(a), isOther(b)),
			cmp.Compare(a.Frontend.Port, b.Frontend.Port), a.Frontend.Compare(b.Frontend))
	})
	first := candidates[0]
	var ports, others []string
	for _, c := range candidates[1:] {
		text := c.Frontend.String() + in.Kind(c.Kind.String())
		switch {
		case c.Port != first.Port && c.Kind == first.Kind:
			ports = append(ports, portText(c))
		case c.Port == first.Port && !c.Frontend.Address.IsUnspecified():
			others = append(others, text)
		}
	}
	if len(ports) > 0 {
		remarks = append(remarks, fmt.Sprintf("this is port %s; %s also has %s", portText(first), first.Port.Service, strings.Join(slices.Compact(ports), ", ")))
	}
	if len(others) > 0 {
		remarks = append(remarks, "the port is also served at "+strings.Join(others, ", "))
	}
	p = Packet{Destination: first.Frontend.Address, Protocol: first.Frontend.Protocol, Port: first.Frontend.Port}
	if n.inRange(first.Frontend) {
		port, _ := strconv.ParseUint(n.Port, 10, 16)
		p.Port = uint16(port)
	}
	return p, remarks, nil
}

func isICMP(protocol string) bool { return protocol == "icmp" || protocol == "icmpv6" }

// pingPacket returns the packet to the ClusterIP, which has no port, or else to another
// address.
func (n Name) pingPacket(in words.Vocabulary, all []served.Named, prefer model.Family) (p Packet, remarks []string, err error) {
	if n.Protocol == "icmpv6" {
		prefer = model.IPv6
	}
	of := mainKind(all)
	for _, s := range all {
		if s.Kind == of && model.FamilyOf(s.Frontend.Address) == prefer {
			p, err := Parse(n.Protocol, s.Frontend.Address.String())
			return p, nil, err
		}
	}
	return p, nil, fmt.Errorf("%s has no %s of %s", n.Service, in.Text(of.String()), prefer)
}

// mainKind returns the kind that comes first: a Service without ClusterIP has load
// balancer addresses.
func mainKind(all []served.Named) model.Kind {
	first := model.NodePort
	for _, s := range all {
		first = min(first, s.Kind)
	}
	return first
}

func (n Name) findCandidates(all []served.Named) ([]served.Named, error) {
	protocol, _ := ParseProtocol(n.Protocol) // 0 matches any
	var known []string
	var out []served.Named
	of := mainKind(all)
	for _, s := range all {
		if s.Kind == of {
			known = append(known, portText(s))
		}
		if protocol != 0 && s.Frontend.Protocol != protocol {
			continue
		}
		if n.Port == "" || n.Port == s.Port.Port || n.Port == strconv.Itoa(int(s.Frontend.Port)) || n.inRange(s.Frontend) {
			out = append(out, s)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	slices.Sort(known)
	wanted := "port"
	if n.Protocol != "" {
		wanted = n.Protocol + " port"
	}
	if n.Port != "" {
		wanted += fmt.Sprintf(" %q", n.Port)
	}
	return nil, fmt.Errorf("%s has no %s: its ports are %s", n.Service, wanted, strings.Join(slices.Compact(known), ", "))
}

func (n Name) inRange(f model.Frontend) bool {
	port, err := strconv.ParseUint(n.Port, 10, 16)
	dialled := f
	dialled.Port, dialled.Last = uint16(port), 0
	return err == nil && f.IsRange() && f.Contains(dialled)
}

// portText returns for example "http (tcp 80)".
func portText(s served.Named) string {
	if s.Frontend.IsRange() {
		return s.Port.Port
	}
	if s.Port.Port == "" {
		return fmt.Sprintf("%s %d", s.Frontend.Protocol, s.Frontend.Port)
	}
	return fmt.Sprintf("%s (%s %d)", s.Port.Port, s.Frontend.Protocol, s.Frontend.Port)
}
