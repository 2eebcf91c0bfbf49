package conntrack

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// scope is a protocol of a family that a listing covers.
type scope struct {
	family   model.Family
	protocol model.Protocol
}

// frontends are the frontends of one scope. They share no memory with the routes,
// which are much larger.
type frontends struct {
	scope
	// ending reports that established TCP connections to endpoints that are gone end,
	// except through the frontends that differ; otherwise only through these.
	ending bool
	known  map[netip.AddrPort]kept
	// gone are the former ones of known, without endpoints, until a cleanup has deleted
	// their flows.
	gone map[netip.AddrPort]struct{}
	// nodePorts are the addresses that serve frontends with the unspecified address;
	// left are those that no longer do, until a cleanup.
	nodePorts, left map[netip.Addr]struct{}
	// ranges are the ranges of ports of each address, and goneRanges the former ones until
	// a cleanup.
	ranges, goneRanges map[netip.Addr]portRanges
	progress
}

func newFrontends(s scope, ending bool) *frontends {
	return &frontends{
		scope: s, ending: ending, known: make(map[netip.AddrPort]kept), gone: make(map[netip.AddrPort]struct{}),
		nodePorts: make(map[netip.Addr]struct{}), left: make(map[netip.Addr]struct{}),
		ranges: make(map[netip.Addr]portRanges), goneRanges: make(map[netip.Addr]portRanges),
	}
}

// kept says which flows through a frontend continue: flows of clients, nil: of all, to the
// serving endpoints, which are sorted.
type kept struct {
	serving []netip.AddrPort
	clients *model.Sources
	// differs reports that established TCP connections to other endpoints end although they
	// continue for most Services, or the other way round.
	differs bool
}

func (k kept) equal(o kept) bool {
	return slices.Equal(k.serving, o.serving) && k.clients.Equal(o.clients) && k.differs == o.differs
}

func (fs *frontends) set(f netip.AddrPort, now kept) {
	if before, known := fs.known[f]; !known || !before.equal(now) {
		fs.markChanged()
	}
	fs.known[f] = now
	delete(fs.gone, f)
}

// remove forgets a frontend. If it has gone, its established TCP connections may end;
// otherwise its Service keeps them now.
func (fs *frontends) remove(f netip.AddrPort, gone bool) {
	if before, known := fs.known[f]; known {
		fs.known[f], fs.gone[f] = kept{differs: gone && before.differs}, struct{}{}
		fs.markChanged()
	}
}

func (s scope) isEcho() bool { return s.protocol == model.EchoProtocol(s.family) }

func (fs *frontends) setNodePorts(addresses []netip.Addr) {
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
	for f := range fs.known {
		if f.Addr().IsUnspecified() {
			fs.markChanged()
			return
		}
	}
	clear(fs.left) // nothing was served there
}

func (fs *frontends) forgetFormer() {
	for f := range fs.gone {
		delete(fs.known, f)
	}
	fs.gone = make(map[netip.AddrPort]struct{}) // clear would keep its size
	fs.left = make(map[netip.Addr]struct{})
	fs.goneRanges = make(map[netip.Addr]portRanges)
}

// serve returns which flows to an address continue, and whether that is or was a
// frontend. As in the rules, exact frontends come first, then NodePorts, then ranges.
func (fs *frontends) serve(dialled netip.AddrPort) (k kept, ours bool) {
	onNode := netip.AddrPortFrom(model.Wildcard(fs.family), dialled.Port())
	_, served := fs.nodePorts[dialled.Addr()]
	_, left := fs.left[dialled.Addr()]
	for _, f := range []netip.AddrPort{dialled, onNode} {
		if f == onNode && !served && !left {
			break
		}
		at, known := fs.known[f]
		if _, gone := fs.gone[f]; known && !gone && (f == dialled || served) {
			return at, true
		}
		if known && !ours {
			k.differs, ours = at.differs, true
		}
	}
	if r := fs.ranges[dialled.Addr()].findRange(dialled.Port()); r != nil {
		return r.kept, true
	}
	if r := fs.goneRanges[dialled.Addr()].findRange(dialled.Port()); r != nil && !ours {
		return r.kept, true
	}
	return k, ours
}

func (fs *frontends) closesEstablished(f model.Frontend) bool {
	if f.IsRange() {
		r := fs.ranges[f.Address].findRange(f.Port)
		return (r != nil && r.differs) != fs.ending
	}
	return fs.known[netip.AddrPortFrom(f.Address, f.Port)].differs != fs.ending
}

// isStale reports whether a flow goes through a frontend to an address that does not
// serve it (9.4), or comes from a client that may not connect (4.82).
//
// A flow without translation is older than the rules. A UDP flow is stale if the
// frontend has endpoints now (9.5). Otherwise it may not be ours, and deleting it
// would not help.
func (fs *frontends) isStale(f Flow) bool {
	k, ours := fs.serve(f.Dialled)
	if !k.clients.Admits(f.Client) {
		k.serving = nil
	}
	if !ours || servesFlow(k.serving, f) {
		return false
	}
	return fs.isEcho() || f.Answers != f.Dialled || f.Protocol == model.UDP && len(k.serving) > 0
}

// isEnded reports whether an established TCP connection is to an endpoint that is gone, and
// ends because of that (9.3, 9.28). One of a client that may not connect ends only where the
// configuration of the node ends connections (4.82).
func (fs *frontends) isEnded(f Flow) bool {
	k, ours := fs.serve(f.Dialled)
	if !ours || f.Answers == f.Dialled {
		return false
	}
	return fs.ending && !k.clients.Admits(f.Client) || k.differs != fs.ending && !servesFlow(k.serving, f)
}

// servesFlow reports whether one of these endpoints answers a flow. Endpoints of a range that
// keeps the port have port 0.
func servesFlow(serving []netip.AddrPort, f Flow) bool {
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

func (c copies) servingOf(choice *model.Choice) []netip.AddrPort {
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

// portRange is a range of ports of an address.
type portRange struct {
	first, last uint16
	kept
}

func (r portRange) compare(o portRange) int {
	return cmp.Or(cmp.Compare(r.first, o.first), cmp.Compare(r.last, o.last))
}

// portRanges are sorted. They do not overlap, except while changes are recorded.
type portRanges []portRange

func (rs portRanges) findRange(port uint16) *portRange {
	i, _ := slices.BinarySearchFunc(rs, port, func(r portRange, port uint16) int { return cmp.Compare(r.last, port) })
	if i < len(rs) && rs[i].first <= port {
		return &rs[i]
	}
	return nil
}

func (rs portRanges) join(r portRange) portRanges {
	rs = slices.DeleteFunc(rs, func(o portRange) bool {
		overlaps := o.first <= r.last && r.first <= o.last
		if overlaps {
			r.first, r.last = min(r.first, o.first), max(r.last, o.last)
		}
		return overlaps
	})
	i, _ := slices.BinarySearchFunc(rs, r, portRange.compare)
	return slices.Insert(rs, i, r)
}

func (fs *frontends) setRange(f model.Frontend, now kept) {
	all, r := fs.ranges[f.Address], portRange{f.Port, f.Last, now}
	i, known := slices.BinarySearchFunc(all, r, portRange.compare)
	switch {
	case !known:
		fs.ranges[f.Address] = slices.Insert(all, i, r)
	case all[i].equal(now):
		return
	default:
		all[i] = r
	}
	fs.markChanged()
}

func (fs *frontends) removeRange(f model.Frontend, gone bool) {
	all, r := fs.ranges[f.Address], portRange{first: f.Port, last: f.Last}
	i, known := slices.BinarySearchFunc(all, r, portRange.compare)
	if !known {
		return
	}
	r.differs = all[i].differs
	if fs.ranges[f.Address] = slices.Delete(all, i, i+1); len(all) == 1 {
		delete(fs.ranges, f.Address)
	}
	if fs.protocol == model.TCP && (!gone || r.differs == fs.ending) {
		return // no connection ends, so that all former ranges of TCP differ, or none
	}
	fs.goneRanges[f.Address] = fs.goneRanges[f.Address].join(r)
	fs.markChanged()
}
