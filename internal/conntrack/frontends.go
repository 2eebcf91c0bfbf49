package conntrack

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// scope is what one listing covers.
type scope struct {
	family   model.Family
	protocol model.Protocol
}

// frontends are those of one scope. They share nothing with the routes, which
// are much larger.
type frontends struct {
	scope
	// serving has the endpoints of each that may keep their flows, sorted.
	serving map[netip.AddrPort][]netip.AddrPort
	// gone are those of them that are frontends no longer, which nobody serves.
	// They stay until a clean-up has looked after their flows.
	gone map[netip.AddrPort]struct{}
	// nodePorts are the addresses on which frontends with the unspecified address
	// are served, and left those on which they no longer are. These stay as the
	// ones in gone do.
	nodePorts, left map[netip.Addr]struct{}
	// changed means that something is different since the last cleanup that did
	// all of its work, and version counts what became different.
	changed bool
	version int
}

func newFrontends(s scope) *frontends {
	return &frontends{
		scope: s, serving: make(map[netip.AddrPort][]netip.AddrPort), gone: make(map[netip.AddrPort]struct{}),
		nodePorts: make(map[netip.Addr]struct{}), left: make(map[netip.Addr]struct{}),
	}
}

// set takes a frontend with the endpoints that serve it.
func (fs *frontends) set(f netip.AddrPort, serving []netip.AddrPort) {
	before, known := fs.serving[f]
	if !known || !slices.Equal(before, serving) {
		fs.change()
	}
	fs.serving[f] = serving
	delete(fs.gone, f)
}

// remove takes note that a frontend is gone, if it was one.
func (fs *frontends) remove(f netip.AddrPort) {
	if _, known := fs.serving[f]; known {
		fs.serving[f] = nil
		fs.gone[f] = struct{}{}
		fs.change()
	}
}

// move takes the addresses on which frontends with the unspecified address are
// served.
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

// settle forgets what a clean-up has looked after.
func (fs *frontends) settle() {
	for f := range fs.gone {
		delete(fs.serving, f)
	}
	fs.gone = make(map[netip.AddrPort]struct{}) // not cleared, which would keep its size
	fs.left = make(map[netip.Addr]struct{})
	fs.changed = false
}

// serve returns the endpoints that may keep the flows of what a client has
// dialled. It reports whether that is or was a frontend.
func (fs *frontends) serve(dialled netip.AddrPort) (serving []netip.AddrPort, ours bool) {
	if serving, ours = fs.serving[dialled]; ours {
		return serving, true
	}
	_, served := fs.nodePorts[dialled.Addr()]
	_, left := fs.left[dialled.Addr()]
	if !served && !left {
		return nil, false
	}
	serving, ours = fs.serving[netip.AddrPortFrom(model.Wildcard(fs.family), dialled.Port())]
	if left {
		return nil, ours
	}
	return serving, ours
}

// stale tells whether a flow goes through a frontend to what does not serve it
// (9.4).
//
// A flow that was never translated is as old as the time before the rules. If
// it is UDP and somebody serves the frontend, that is where it belongs (9.5).
// Otherwise it is not known to be ours, and to end it would help nobody.
func (fs *frontends) stale(f Flow) bool {
	serving, ours := fs.serve(f.Dialled)
	if !ours {
		return false
	}
	if _, serves := slices.BinarySearchFunc(serving, f.Answers, netip.AddrPort.Compare); serves {
		return false
	}
	return f.Answers != f.Dialled || f.Protocol == model.UDP && len(serving) > 0
}

// copies are the addresses of serving endpoints: the frontends of a service port
// share their choice, and so the copy.
type copies map[*model.Choice][]netip.AddrPort

func (c copies) of(choice *model.Choice) []netip.AddrPort {
	out, ok := c[choice]
	if !ok && len(choice.Serving) > 0 {
		out = make([]netip.AddrPort, len(choice.Serving))
		for i, e := range choice.Serving {
			out[i] = e.Address
		}
		c[choice] = out
	}
	return out
}
