package prove

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// World is the objects and the configuration of a node.
type World struct {
	config   model.Config
	snapshot *model.Snapshot
	node     model.Node
	// local are the addresses of the node, beside loopback, and own those that its Node object
	// and the bind address name: the first one of a family is its primary one (6.3).
	local, own []netip.Addr
	wildcards  bool // NodePorts are frontends for all addresses that serve them (6.6)
	nodePorts  map[netip.Addr]bool
	slices     map[model.ServiceName][]*model.EndpointSlice
	claims     map[at]*frontend // exact ports, the winners (4.39)
	ranges     map[address][]*frontend
	clusterIPs map[netip.Addr]bool // in use (4.25)
	external   map[netip.Addr]bool // external IPs and load balancer addresses with a frontend
	pings      map[netip.Addr]*frontend
	all        []*frontend           // the winners, in the order of the Services
	relays     bool                  // a Service asks for it
	relaying   map[model.Family]bool // the process that relays has its port
	hairpins   map[at]bool
	pods       map[model.Family]client // one of each family
	families   map[model.Family]bool   // in which anything is served
	// endpointAddresses are those of all slices.
	endpointAddresses map[netip.Addr]bool
	withoutTables     map[*model.Service]bool // that would have some
	unusedPorts       map[address]uint16      // those that were asked for
}

// at is what clients dial.
type at struct {
	address
	port uint16
}

type address struct {
	addr     netip.Addr
	protocol model.Protocol
}

// NewWorld reads the objects as a node of this configuration does.
func NewWorld(s *model.Snapshot, c model.Config) *World {
	w := &World{config: c, snapshot: s, node: model.Node{Name: c.NodeName}, pods: make(map[model.Family]client), unusedPorts: make(map[address]uint16)}
	for _, n := range s.Nodes {
		if n.Name == c.NodeName {
			w.node = *n
		}
	}
	if b := c.BindAddress; b.IsValid() && !b.IsUnspecified() {
		w.own = append(w.own, b)
	}
	w.own = append(w.own, w.node.Addresses...)
	if w.local = c.InterfaceAddresses; len(w.local) == 0 {
		w.local = w.own
	}
	w.serveNodePorts()
	w.slices, w.endpointAddresses = make(map[model.ServiceName][]*model.EndpointSlice), make(map[netip.Addr]bool)
	for _, sl := range s.Slices {
		name := model.ServiceName{Namespace: sl.Namespace, Name: sl.Service}
		w.slices[name] = append(w.slices[name], sl)
		for i := range sl.Hosts {
			w.endpointAddresses[sl.Hosts[i].Address] = true
		}
	}
	w.settleTables()
	w.settle()
	w.settleHairpins()
	w.settlePings()
	return w
}

// Relay says that the process that relays has its port in a family, and lets connections pass (4.47).
func (w *World) Relay(f model.Family) {
	if w.relaying == nil {
		w.relaying = make(map[model.Family]bool)
	}
	w.relaying[f] = true
}

// primary returns the node's first address of a family (6.3).
func (w *World) primary(f model.Family) (netip.Addr, bool) {
	i := slices.IndexFunc(w.own, func(a netip.Addr) bool { return familyOf(a) == f })
	if i < 0 {
		return netip.Addr{}, false
	}
	return w.own[i], true
}

func familyOf(a netip.Addr) model.Family {
	if a.Is4() {
		return model.IPv4
	}
	return model.IPv6
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func ofFamily(list []netip.Prefix, f model.Family) (out []netip.Prefix) {
	for _, p := range list {
		if familyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

// serveNodePorts finds the addresses that serve NodePorts (section 6).
func (w *World) serveNodePorts() {
	w.wildcards, w.nodePorts = len(w.config.NodePortAddresses) > 0, make(map[netip.Addr]bool)
	hasPrimary := w.config.NodePortPrimary || !w.wildcards
	for _, f := range model.Families {
		primary, known := w.primary(f)
		if hasPrimary && known {
			w.nodePorts[primary] = true
		}
		ranges := ofFamily(w.config.NodePortAddresses, f)
		for _, a := range w.local {
			inside := contains(ranges, a) || len(ranges) == 0 && !hasPrimary // 6.4
			if familyOf(a) == f && inside && !(a.Is6() && a.IsLinkLocalUnicast()) {
				w.nodePorts[a] = true
			}
		}
	}
	for a := range w.nodePorts {
		if a.IsLoopback() { // 6.6
			delete(w.nodePorts, a)
		}
	}
}

// detects returns how pods are recognised in a family (section 7): by their source, by the
// interface of their packets, or not at all.
func (w *World) detects(f model.Family) (sources netip.Prefix, byInterface, detects bool) {
	var ranges []netip.Prefix
	switch w.config.DetectLocal {
	case model.DetectClusterCIDR:
		ranges = ofFamily(w.config.ClusterCIDRs, f)
	case model.DetectNodeCIDR:
		ranges = ofFamily(w.node.PodCIDRs, f)
	default:
		return netip.Prefix{}, true, w.config.PodInterface != ""
	}
	if len(ranges) == 0 {
		return netip.Prefix{}, false, false // 7.2
	}
	return ranges[0].Masked(), false, true
}

// maxInterfaceName is the length of the longest name of an interface.
const maxInterfaceName = 15

// isPod reports whether the detector recognises a packet.
func (w *World) isPod(source netip.Addr, in string) bool {
	sources, byInterface, detects := w.detects(familyOf(source))
	name := w.config.PodInterface
	switch {
	case !detects:
		return false
	case !byInterface:
		return sources.Contains(source)
	case w.config.DetectLocal == model.DetectInterfaceNamePrefix:
		return len(name) <= maxInterfaceName && len(in) >= len(name) && in[:len(name)] == name // 7.6
	}
	return in == name
}

// isLocal reports whether an address is one of this machine.
func (w *World) isLocal(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(w.local, a) }
