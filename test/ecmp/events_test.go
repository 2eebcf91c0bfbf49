package ecmp

import "fmt"

// event is a change of the routes to the nodes.
type event struct {
	name          string
	kind          string // of the group of next hops
	before, after []int  // nodes that are announced
	change        func(*lab)
}

var (
	two = []int{1, 2}
	all = []int{1, 2, 3}
)

var events = []event{
	{"a node withdraws its route", "mpath", all, two, nil},
	{"a node is added", "mpath", two, all, nil},
	{"a node withdraws its route, resilient group", "resilient", all, two, nil},
	{"a node is added, resilient group", "resilient", two, all, nil},
	{"a node is cut off, and its route withdrawn", "mpath", all, two, func(l *lab) { l.plug(3, false) }},
	{"packets arrive by another router", "mpath", all, all, func(l *lab) { l.arriveBy(2) }},
}

// happen observes flows while an event happens, and reverts it.
func (l *lab) happen(e event) observed {
	l.t.Helper()
	for _, r := range l.routers {
		l.spread(r, e.kind)
		l.announce(r, e.kind, e.before...)
	}
	o := l.observe(func() {
		if e.change != nil {
			e.change(l)
		}
		for _, r := range l.routers {
			l.announce(r, e.kind, e.after...)
		}
	})
	l.plug(3, true)
	l.arriveBy(1)
	fmt.Fprintf(l.t.Output(), "%s: TCP: %d of %d move, kept: %v; UDP: %d of %d move, kept: %v; %d of %d not opened\n", e.name,
		o.tcp.moved, o.tcp.flows, o.tcp, o.udp.moved, o.udp.flows, o.udp, o.failed, o.opened)
	return o
}

// plug connects a node to both networks, or cuts it off: it does not notice.
func (l *lab) plug(node int, in bool) {
	l.t.Helper()
	for _, network := range []string{"front", "back"} {
		if in {
			l.wires.TestScript(l.t, `ip link set "node-$1-$2" master "$2"`, fmt.Sprint(node), network)
		} else {
			l.wires.TestScript(l.t, `ip link set "node-$1-$2" nomaster`, fmt.Sprint(node), network)
		}
	}
}

// changes is how often the endpoints change in a row of the table about that.
const changes = 4

// change adds an endpoint to eleven others, lets a node withdraw its route then, and
// returns what happens to the flows that were open. It repeats that.
func (l *lab) change(s setting) (o observed) {
	l.t.Helper()
	const backends = serverPorts * nodes
	s.backends = backends - 1
	l.serveOn(s)
	for range changes {
		for _, r := range l.routers {
			l.announce(r, "mpath", all...)
		}
		s.backends = backends - 1
		l.apply(s)
		o.add(l.observe(func() {
			s.backends = backends
			l.apply(s)
			for _, r := range l.routers {
				l.announce(r, "mpath", two...)
			}
		}))
	}
	return o
}
