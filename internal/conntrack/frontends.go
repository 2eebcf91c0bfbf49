package conntrack

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// scope is what a listing covers.
type scope struct {
	family   model.Family
	protocol model.Protocol
}

// frontends are the frontends of one scope. They share no memory with the routes,
// which are much larger.
type frontends struct {
	scope
	// serving has the endpoints that may keep their flows, sorted, by frontend.
	serving map[netip.AddrPort][]netip.AddrPort
	// clients are those that may connect to the frontends of Services that list them.
	clients map[netip.AddrPort]*model.Sources
	// gone are the former frontends, without endpoints, until a cleanup has deleted
	// their flows.
	gone map[netip.AddrPort]struct{}
	// nodePorts are the addresses that serve frontends with the unspecified address;
	// left are those that no longer do, until a cleanup.
	nodePorts, left map[netip.Addr]struct{}
	// ranges are the ranges of ports of each address, and goneRanges the former ones until
	// a cleanup.
	ranges, goneRanges map[netip.Addr]portRanges
	// changed reports changes since the last successful cleanup; version counts them.
	changed bool
	version int
}

func newFrontends(s scope) *frontends {
	return &frontends{
		scope: s, serving: make(map[netip.AddrPort][]netip.AddrPort), clients: make(map[netip.AddrPort]*model.Sources), gone: make(map[netip.AddrPort]struct{}),
		nodePorts: make(map[netip.Addr]struct{}), left: make(map[netip.Addr]struct{}),
		ranges: make(map[netip.Addr]portRanges), goneRanges: make(map[netip.Addr]portRanges),
	}
}

func (fs *frontends) set(f netip.AddrPort, serving []netip.AddrPort, clients *model.Sources) {
	before, known := fs.serving[f]
	if !known || !slices.Equal(before, serving) || !clients.Equal(fs.clients[f]) {
		fs.change()
	}
	fs.serving[f] = serving
	if fs.clients[f] = clients; clients == nil {
		delete(fs.clients, f)
	}
	delete(fs.gone, f)
}

func (fs *frontends) remove(f netip.AddrPort) {
	if _, known := fs.serving[f]; known {
		fs.serving[f] = nil
		delete(fs.clients, f)
		fs.gone[f] = struct{}{}
		fs.change()
	}
}

// isEcho reports whether the flows are those of echo requests.
func (s scope) isEcho() bool { return s.protocol == model.EchoProtocol(s.family) }

// forget makes all flows to an address stale until a cleanup.
func (fs *frontends) forget(f netip.AddrPort) {
	fs.serving[f] = nil
	fs.gone[f] = struct{}{}
	fs.change()
}

// move records the addresses that serve frontends with the unspecified address.
func (fs *frontends) move(addresses []netip.Addr) {
	before := fs.nodePorts
	fs.nodePorts = make(map[netip.Addr]struct{}, len(before))
	moved := false
	for _, a := range addresses {
		if model.FamilyOf(a) != fs.family {
			continue
		}
		fs.nodePorts[a] = struct{}{}
		delete(fs.left, a)
		_, known := before[a]
		moved = moved || !known
	}
	for a := range before {
		if _, stays := fs.nodePorts[a]; !stays {
			fs.left[a] = struct{}{}
			moved = true
		}
	}
	if !moved {
		return
	}
	for f := range fs.serving {
		if f.Addr().IsUnspecified() {
			fs.change()
			return
		}
	}
	clear(fs.left) // nothing was served there
}

func (fs *frontends) change() {
	fs.changed = true
	fs.version++
}

// settle forgets former frontends and addresses after a cleanup.
func (fs *frontends) settle() {
	for f := range fs.gone {
		delete(fs.serving, f)
	}
	fs.gone = make(map[netip.AddrPort]struct{}) // clear would keep its size
	fs.left = make(map[netip.Addr]struct{})
	fs.goneRanges = make(map[netip.Addr]portRanges)
	fs.changed = false
}

// serve returns the endpoints that may keep flows of a client to an address, and whether
// that is or was a frontend. As in the rules, exact frontends come first, then NodePorts,
// then ranges.
func (fs *frontends) serve(client netip.Addr, dialled netip.AddrPort) (serving []netip.AddrPort, ours bool) {
	onNode := netip.AddrPortFrom(model.Wildcard(fs.family), dialled.Port())
	_, served := fs.nodePorts[dialled.Addr()]
	_, left := fs.left[dialled.Addr()]
	for _, f := range []netip.AddrPort{dialled, onNode} {
		if f == onNode && !served && !left {
			break
		}
		endpoints, known := fs.serving[f]
		if _, gone := fs.gone[f]; known && !gone && (f == dialled || served) {
			return admitted(endpoints, fs.clients[f], client), true
		}
		ours = ours || known
	}
	if r := fs.ranges[dialled.Addr()].find(dialled.Port()); r != nil {
		return admitted(r.serving, r.clients, client), true
	}
	return nil, ours || fs.goneRanges[dialled.Addr()].find(dialled.Port()) != nil
}

// admitted returns the endpoints that may keep flows of a client.
func admitted(serving []netip.AddrPort, clients *model.Sources, client netip.Addr) []netip.AddrPort {
	if !clients.Admits(client) {
		return nil
	}
	return serving
}

// stale reports whether a flow goes through a frontend to an address that does not
// serve it (9.4), or comes from a client that may not connect (4.82).
//
// A flow without translation is older than the rules. A UDP flow is stale if the
// frontend has endpoints now (9.5). Otherwise it may not be ours, and deleting it
// would not help.
func (fs *frontends) stale(f Flow) bool {
	serving, ours := fs.serve(f.Client, f.Dialled)
	if !ours || serves(serving, f) {
		return false
	}
	return fs.isEcho() || f.Answers != f.Dialled || f.Protocol == model.UDP && len(serving) > 0
}

// serves reports whether one of these endpoints answers a flow. Those of a range that
// keeps the port have port 0.
func serves(serving []netip.AddrPort, f Flow) bool {
	answers := f.Answers
	if len(serving) > 0 && serving[0].Port() == 0 {
		if answers.Port() != f.Dialled.Port() {
			return false
		}
		answers = netip.AddrPortFrom(answers.Addr(), 0)
	}
	_, found := slices.BinarySearchFunc(serving, answers, netip.AddrPort.Compare)
	return found
}

// copies are the addresses of serving endpoints by choice: the frontends of a
// service port share both.
type copies map[*model.Choice][]netip.AddrPort

func (c copies) of(choice *model.Choice) []netip.AddrPort {
	out, ok := c[choice]
	if !ok && len(choice.Serving) > 0 {
		out = make([]netip.AddrPort, len(choice.Serving))
		for i, e := range choice.Serving {
			out[i] = e.Address()
		}
		c[choice] = out
	}
	return out
}
