package prove

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Class is packets that must experience the same, with one that stands for them.
type Class struct {
	bytecode.Packet
	Client string // who sends it, for messages
}

// client is where packets come from.
type client struct {
	source netip.Addr
	in     string
	who    string
}

// Interfaces of packets that arrive, unless pods are recognised by theirs.
const (
	outsideInterface = "eth0"
	podInterface     = "pod0"
)

// bridged is the name of clients whose packets a bridge forwards.
const bridged = "behind a bridge"

// Names of clients that try to reach another process at the port of the relay (4.47).
const (
	inVRF    = "in a VRF"
	pretends = "a program with CAP_NET_RAW"
)

// admitted is the priority of packets that may reach the relay, which such a program can set.
const admitted = 0x7265_6c61

// otherBridge is not the one of the pods.
const otherBridge = "br9"

// mostOfAKind limits the endpoints of a frontend, and the addresses that serve a NodePort, that
// are clients or destinations of their own: beyond that, some stand for the others.
const mostOfAKind = 16

// Classes calls yield with all classes of packets, until that returns false.
func (w *World) Classes(yield func(Class) bool) {
	for _, f := range w.all {
		if !w.classesOf(f, yield) {
			return
		}
	}
	for _, a := range w.addresses() {
		if !w.classesAt(a, yield) {
			return
		}
	}
}

// classesOf is for what clients dial to reach a frontend, and for ports beside it.
func (w *World) classesOf(f *frontend, yield func(Class) bool) bool {
	ports := []uint16{f.port}
	if f.isRange() {
		ports = append(ports, f.port+(f.last-f.port)/2, f.last)
	}
	for _, a := range w.dialled(f) {
		clients := w.clientsOf(f, a)
		for _, port := range ports {
			for i, c := range clients {
				if a.IsUnspecified() && c.in == "" {
					continue // no program can send such a packet
				}
				p := bytecode.Packet{Protocol: uint8(f.protocol), Source: c.source, Destination: a, SourcePort: clientPort, Port: port, In: c.in, Bridged: c.who == bridged, InVRF: c.who == inVRF}
				if c.who == pretends {
					p.Priority = admitted
				}
				if !yield(Class{p, c.who}) {
					return false
				}
				if w.limited(f) {
					exceeds := p
					if exceeds.Exceeds = true; !yield(Class{exceeds, c.who}) {
						return false
					}
				}
				if i >= simpleClients {
					continue
				}
				for _, p.Known = range []bytecode.Known{bytecode.Older, bytecode.Related} {
					if !yield(Class{p, c.who}) {
						return false
					}
				}
			}
		}
	}
	return true
}

// clientPort is a port that no Service in a test has.
const clientPort = 47001

// dialled returns the addresses that lead to a frontend.
func (w *World) dialled(f *frontend) (out []netip.Addr) {
	if !f.addr.IsUnspecified() {
		return []netip.Addr{f.addr}
	}
	for a := range w.nodePorts {
		if familyOf(a) == familyOf(f.addr) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return append(some(out), f.addr) // to which a machine of an attached network may send (6.6)
}

// some returns as many of a list as count, spread over it.
func some[T any](list []T) []T {
	if len(list) <= mostOfAKind {
		return list
	}
	out := make([]T, mostOfAKind)
	for i := range out {
		out[i] = list[i*(len(list)-1)/(mostOfAKind-1)]
	}
	return out
}

// simpleClients is the number of clients that every address has: see clientsAt.
const simpleClients = 3

// clientsAt returns the clients that every address has: one outside of the cluster, a pod, and
// the node.
func (w *World) clientsAt(a netip.Addr) []client {
	f := familyOf(a)
	node := a
	if !w.isLocal(a) {
		node = w.nodeAddress(f)
	}
	if _, known := w.pods[f]; !known {
		w.pods[f] = w.pod(f)
	}
	return append(make([]client, 0, simpleClients), w.outsider(f), w.pods[f], client{node, "", "the node"})
}

func (w *World) nodeAddress(f model.Family) netip.Addr {
	for _, a := range w.local {
		if familyOf(a) == f && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			return a
		}
	}
	if f == model.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Addresses that are for documentation: no Service has them.
var outsiders = map[model.Family]netip.Addr{
	model.IPv4: netip.AddrFrom4([4]byte{198, 51, 100, 201}), model.IPv6: netip.MustParseAddr("2001:db8:ffff::c9"),
}

func (w *World) outsider(f model.Family) client {
	return client{outsiders[f], outsideInterface, "outside"}
}

// pod returns a pod of this node, as the detector knows it.
func (w *World) pod(f model.Family) client {
	sources, byInterface, detects := w.detects(f)
	if !detects || byInterface {
		return client{w.unused(defaultPods[f]), w.podInterface(), "a pod"}
	}
	return client{w.unused(sources), podInterface, "a pod"}
}

var defaultPods = map[model.Family]netip.Prefix{
	model.IPv4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 250, 0, 0}), 16), model.IPv6: netip.MustParsePrefix("fd00:fa::/64"),
}

// podInterface returns the interface of a pod.
func (w *World) podInterface() string {
	switch w.config.DetectLocal {
	case model.DetectBridgeInterface:
		return w.config.PodInterface[:min(len(w.config.PodInterface), maxInterfaceName)]
	case model.DetectInterfaceNamePrefix:
		return (w.config.PodInterface + "0")[:min(len(w.config.PodInterface)+1, maxInterfaceName)]
	}
	return podInterface
}

// unused returns an address of a range that no object has.
func (w *World) unused(p netip.Prefix) netip.Addr {
	a := p.Addr()
	for range mostOfAKind * mostOfAKind {
		next := a.Next()
		if !p.Contains(next) {
			break
		}
		if a = next; !w.isLocal(a) && !w.clusterIPs[a] && !w.external[a] && !w.endpointAddresses[a] {
			break
		}
	}
	return a
}

// clientsOf returns the clients of a frontend at an address.
func (w *World) clientsOf(f *frontend, a netip.Addr) []client {
	out := w.clientsAt(a)
	var servers []client
	for _, s := range []set{f.cluster, f.local} {
		for _, e := range s {
			if c := w.server(e); !slices.Contains(servers, c) {
				servers = append(servers, c)
			}
		}
	}
	out = append(out, some(servers)...)
	if w.config.DetectLocal == model.DetectBridgeInterface { // whose packets a bridge may forward (7.5)
		out = append(out, client{w.pods[familyOf(a)].source, w.podInterface(), bridged}, client{outsiders[familyOf(a)], otherBridge, bridged})
	}
	if f.extra().Relay != model.NoRelay {
		out = append(out, client{outsiders[familyOf(a)], outsideInterface, inVRF}, client{w.nodeAddress(familyOf(a)), "", pretends})
	}
	for _, p := range f.lists() {
		last := lastOf(p)
		for _, source := range []netip.Addr{p.Addr(), p.Addr().Prev(), last, last.Next()} {
			if source.IsValid() && !source.IsUnspecified() {
				in := outsideInterface
				if w.isLocal(source) {
					in = ""
				}
				out = append(out, client{source, in, "listed"})
			}
		}
	}
	return out
}

// server returns an endpoint as the client of its own Service.
func (w *World) server(e endpoint) client {
	c := client{e.at.Addr(), w.podInterface(), "the endpoint itself"}
	if w.isLocal(c.source) {
		c.in = ""
	} else if !w.isHere(e.host) && e.host.Place.Node() != "" {
		c.in = outsideInterface
	}
	return c
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// addresses returns the addresses of all frontends, and others in ranges for Services.
func (w *World) addresses() (out []netip.Addr) {
	add := func(a netip.Addr) {
		if a.IsValid() && !a.IsUnspecified() && (len(out) == 0 || out[len(out)-1] != a) {
			out = append(out, a)
		}
	}
	for _, f := range w.all {
		for _, a := range w.dialled(f) {
			add(a)
		}
	}
	for _, p := range slices.Concat(w.snapshot.ServiceCIDRs, w.config.LoadBalancerCIDRs) {
		add(w.unused(p.Masked()))
		add(lastOf(p))
	}
	for _, p := range w.config.Links {
		add(w.unused(p.Masked()))
	}
	for _, f := range model.Families {
		add(w.nodeAddress(f))
		add(w.unused(defaultPods[f]))
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// classesAt is for packets to an address that no frontend serves.
func (w *World) classesAt(a netip.Addr, yield func(Class) bool) bool {
	echo := model.ICMP
	if familyOf(a) == model.IPv6 {
		echo = model.ICMPv6
	}
	for i, c := range w.clientsAt(a) {
		if w.relays && w.isLocal(a) && !yield(Class{bytecode.Packet{Protocol: uint8(model.TCP), Source: c.source, Destination: a, SourcePort: clientPort, Port: model.RelayPort, In: c.in}, c.who}) {
			return false // 4.96: the process resets it, and not a rule
		}
		for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP, echo, otherProtocol} {
			p := bytecode.Packet{Protocol: uint8(protocol), Source: c.source, Destination: a, SourcePort: clientPort, Port: w.unusedPort(address{a, protocol}), In: c.in}
			if protocol == echo || protocol == otherProtocol {
				p.SourcePort, p.Port = 0, 0
			}
			if other := p; protocol == echo {
				if other.ICMPType = otherType; !yield(Class{other, c.who}) {
					return false
				}
			}
			if !yield(Class{p, c.who}) {
				return false
			}
			for _, p.Known = range []bytecode.Known{bytecode.Older, bytecode.Related} {
				if !yield(Class{p, c.who}) {
					return false
				}
			}
			if p.Known = bytecode.Answer; i == simpleClients-1 && !yield(Class{p, c.who}) {
				return false
			}
		}
	}
	return true
}

// otherProtocol is GRE, which no Service has.
const otherProtocol model.Protocol = 47

// otherType is a type of ICMP and ICMPv6 that is no echo request.
const otherType = 200

// unusedPort returns a port that no frontend of an address has, if there is one.
func (w *World) unusedPort(a address) uint16 {
	port, known := w.unusedPorts[a]
	if !known {
		for port = 1; port != 0 && w.serving(at{a, port}) != nil; port += 4099 {
		}
		w.unusedPorts[a] = port
	}
	return port
}
