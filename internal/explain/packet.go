package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Packet is the first packet of a connection.
type Packet struct {
	Source      netip.Addr // the zero Addr: an unknown address of the node
	Destination netip.Addr
	Protocol    model.Protocol
	Port        uint16 // zero: the protocol has none, or it is unknown
	Interface   string // input interface; empty: unknown, or sent by the node
	FromNode    bool   // sent by the node itself
}

// Parse parses a protocol and a destination, such as "tcp" and "10.96.0.10:80", or
// "icmp" and "10.96.0.10". Errors show a valid form.
func Parse(protocol, target string) (Packet, error) {
	p := Packet{}
	var err error
	if p.Protocol, err = ParseProtocol(protocol); err != nil {
		return p, err
	}
	if p.Destination, p.Port, err = p.parseTarget(target); err != nil {
		return p, err
	}
	f := model.FamilyOf(p.Destination)
	switch {
	case p.Destination.Zone() != "":
		return p, fmt.Errorf("%q has a zone: give the address without %%%s", target, p.Destination.Zone())
	case protocol == "icmp" && f == model.IPv6:
		return p, fmt.Errorf("%s is an IPv6 address: use icmpv6", p.Destination)
	case protocol == "icmpv6" && f == model.IPv4:
		return p, fmt.Errorf("%s is an IPv4 address: use icmp", p.Destination)
	}
	return p, nil
}

// ParseProtocol parses the name or number of a protocol.
func ParseProtocol(name string) (model.Protocol, error) {
	if p, err := model.ParseProtocol(name); err == nil {
		return p, nil
	}
	n, err := strconv.ParseUint(name, 10, 8)
	switch {
	case name == "icmp":
		return model.ICMP, nil
	case name == "icmpv6":
		return model.ICMPv6, nil
	case err != nil:
		return 0, fmt.Errorf("%q is not a protocol: use tcp, udp, sctp, icmp, icmpv6 or a number up to 255", name)
	}
	return model.Protocol(n), nil
}

func (p Packet) parseTarget(target string) (netip.Addr, uint16, error) {
	if ap, err := netip.ParseAddrPort(target); err == nil {
		switch {
		case p.Protocol.IsEcho():
			return netip.Addr{}, 0, fmt.Errorf("%q has a port, and ICMP has none: write %s", target, ap.Addr())
		case ap.Port() == 0:
			return netip.Addr{}, 0, fmt.Errorf("%q: port 0 cannot be dialled: use 1 to 65535", target)
		}
		return ap.Addr().Unmap(), ap.Port(), nil
	}
	bare := target
	if n := len(bare); n > 1 && bare[0] == '[' && bare[n-1] == ']' {
		bare = bare[1 : n-1]
	}
	a, err := netip.ParseAddr(bare)
	switch {
	case err != nil && p.needsPort():
		return netip.Addr{}, 0, fmt.Errorf("%q is not an address with a port: write for example 10.96.0.10:80 or [fd00::10]:80; names are not resolved", target)
	case err != nil:
		return netip.Addr{}, 0, fmt.Errorf("%q is not an address: write for example 10.96.0.10 or fd00::10; names are not resolved", target)
	case p.needsPort() && bare == target && model.FamilyOf(a) == model.IPv6 && inBrackets(target) != "":
		return netip.Addr{}, 0, fmt.Errorf("%q has no port, or no brackets: write for example %s, or %s", target, netip.AddrPortFrom(a, 80), inBrackets(target))
	case p.needsPort():
		return netip.Addr{}, 0, fmt.Errorf("%q has no port: write for example %s", target, netip.AddrPortFrom(a, 80))
	}
	return a.Unmap(), 0, nil
}

// inBrackets returns an IPv6 address and its port as they are meant where brackets are missing; empty:
// the end is no port.
func inBrackets(s string) string {
	i := strings.LastIndexByte(s, ':')
	ap, err := netip.ParseAddrPort("[" + s[:i] + "]" + s[i:])
	if err != nil || ap.Port() == 0 {
		return ""
	}
	return ap.String()
}

// needsPort reports whether a packet of this protocol always has a port.
func (p Packet) needsPort() bool { return slices.Contains(model.Protocols[:], p.Protocol) }

// Frontend returns the destination of the packet.
func (p Packet) Frontend() model.Frontend {
	return model.Frontend{Address: p.Destination, Protocol: p.Protocol, Port: p.Port}
}

// isEcho reports whether the packet is an echo request: of ICMP, nothing else can be asked
// about.
func (p Packet) isEcho() bool { return p.Protocol == model.EchoProtocol(model.FamilyOf(p.Destination)) }

// String returns for example "tcp 10.96.0.10:80 from 203.0.113.7".
func (p Packet) String() string { return p.packetText(words.Kubernetes) }

func (p Packet) packetText(in words.Vocabulary) string {
	return p.protocolText() + " " + p.targetText() + " from " + p.sourceText(in)
}

func (p Packet) protocolText() string {
	switch p.Protocol {
	case model.ICMP:
		return "icmp"
	case model.ICMPv6:
		return "icmpv6"
	}
	return p.Protocol.String()
}

func (p Packet) targetText() string {
	return model.EndpointText(netip.AddrPortFrom(p.Destination, p.Port))
}

func (p Packet) sourceText(in words.Vocabulary) string {
	text := in.Text("the node")
	switch {
	case p.FromNode && p.Source.IsValid():
		text += " (" + p.Source.String() + ")"
	case !p.FromNode:
		text = p.Source.String()
	}
	if p.Interface != "" {
		text += " on " + p.Interface
	}
	return text
}

// LocalAddresses returns the addresses of the node according to the objects and the
// configuration. The primary address of each family comes first.
func LocalAddresses(s *model.Snapshot, c model.Config) []netip.Addr {
	node, _ := s.Node(c.NodeName)
	return slices.Concat(model.NewLocality(node, c).Node.Addresses, c.InterfaceAddresses)
}

// SentBy returns the packet as the node itself sends it: from the destination if
// that is local, else from the node's first address of the family.
func (p Packet) SentBy(local []netip.Addr) Packet {
	p.FromNode = true
	family := model.FamilyOf(p.Destination)
	switch i := slices.IndexFunc(local, func(a netip.Addr) bool { return model.FamilyOf(a) == family }); {
	case p.Destination.IsLoopback() || slices.Contains(local, p.Destination):
		p.Source = p.Destination
	case i >= 0:
		p.Source = local[i]
	}
	return p
}

// Through returns the packet that a listener on localhost sends for another one, and that
// one; nil: there is no listener. connectsTo returns where the listener of a frontend
// connects to.
func (p Packet) Through(connectsTo func(model.Frontend) (netip.AddrPort, bool), local []netip.Addr) (sent Packet, asked *Packet) {
	fromNode := p.FromNode || !p.Source.IsValid() || p.Source.IsLoopback()
	if !fromNode || p.Protocol != model.TCP || !p.Frontend().OnLocalhost() {
		return p, nil
	}
	to, ok := connectsTo(p.Frontend())
	if !ok {
		return p, nil
	}
	return Packet{Destination: to.Addr(), Protocol: p.Protocol, Port: to.Port()}.SentBy(local), &p
}

// Listener returns where the listener of a NodePort on localhost connects to; false: there
// is none.
func Listener(router *model.Router, f model.Frontend) (netip.AddrPort, bool) {
	to, route := router.BehindLocalhost(f)
	return netip.AddrPortFrom(to.Address, to.Port), route != nil
}
