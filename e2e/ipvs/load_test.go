package ipvs

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/e2e/ipvs/report"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// pause is that of a client between two requests.
const pause = 20 * time.Millisecond

// limits are how long a request may take. TCP repeats what is lost, so that only a busy machine takes
// long. A datagram is not repeated: it counts as lost after the time that docs/ipvs.md names.
var limits = map[string]time.Duration{"tcp": time.Minute, "udp": 5 * time.Second}

// client makes requests of a kind, without pause.
type client struct {
	kind string
	// step makes the i-th request of a round; it returns false at the end of the round.
	step func(i int, c *report.Count) (more bool)

	alive  int // connections that are kept open
	count  report.Count
	rounds int
}

// load is all clients.
type load struct {
	clients []*client
	mu      sync.Mutex // of what follows, and of alive, count and rounds
	moved   *sync.Cond
	phases  []report.Phase
	ended   bool
	running sync.WaitGroup
}

// target is what clients dial, from a host.
type target struct {
	from    *netlab.Host
	network string
	to      netip.AddrPort
}

func (t target) String() string { return fmt.Sprintf("%s, %s %s", t.from.Name, t.network, t.to) }

// flow is a connection or a socket that stays open.
type flow struct {
	*netlab.Flow
	target
	peer string
}

// fresh makes a request over a new connection to each target.
func fresh(kind string, targets []target) *client {
	return &client{kind: kind, step: func(i int, c *report.Count) bool {
		t := targets[i]
		_, err := t.from.Ask(t.network, t.to, limits[t.network])
		note(c, t, err)
		return i+1 < len(targets)
	}}
}

// kept makes requests over connections that were opened before. A broken one is not asked
// again; a socket of UDP is broken if the next datagram has no answer, either.
func kept(kind string, flows []*flow) *client {
	open := flows
	return &client{kind: kind, alive: len(flows), step: func(i int, c *report.Count) bool {
		if i >= len(open) {
			return false
		}
		f := open[i]
		a, err := f.Ask()
		note(c, f.target, err)
		if err != nil && f.network == "udp" {
			a, err = f.Ask()
		}
		switch {
		case err != nil:
			c.Broken++
			f.Close()
			open = append(open[:i:i], open[i+1:]...)
		case a.Name != f.peer:
			c.Moved++
			f.peer = a.Name
		}
		return i+1 < len(open)
	}}
}

// sticky makes new connections to a Service with session affinity.
func sticky(kind string, targets []target) *client {
	peers := map[target]string{}
	return &client{kind: kind, step: func(i int, c *report.Count) bool {
		t := targets[i]
		a, err := t.from.Ask(t.network, t.to, limits[t.network])
		note(c, t, err)
		if err == nil {
			if peers[t] != "" && peers[t] != a.Name {
				c.Moved++
			}
			peers[t] = a.Name
		}
		return i+1 < len(targets)
	}}
}

func note(c *report.Count, t target, err error) {
	c.Requests++
	if err == nil {
		return
	}
	c.Failed++
	if c.Error == "" {
		c.Error = fmt.Sprintf("%s: %v", t, err)
	}
}

// startLoad starts the clients.
func startLoad(clients ...*client) *load {
	l := &load{clients: clients}
	l.moved = sync.NewCond(&l.mu)
	for _, c := range clients {
		l.running.Go(func() { l.run(c) })
	}
	return l
}

func (l *load) run(c *client) {
	for i := 0; ; {
		await.Pace(nil, pause)
		var one report.Count
		more := c.step(i, &one)
		i++
		l.mu.Lock()
		add(&c.count, one)
		c.alive -= one.Broken
		if !more {
			i, c.rounds = 0, c.rounds+1
			l.moved.Broadcast()
		}
		ended := l.ended
		l.mu.Unlock()
		if ended {
			return
		}
	}
}

func add(sum *report.Count, one report.Count) {
	sum.Requests += one.Requests
	sum.Failed += one.Failed
	sum.Broken += one.Broken
	sum.Moved += one.Moved
	if sum.Error == "" {
		sum.Error = one.Error
	}
}

// phase runs a step, waits until every client has made another round after it, and
// records the requests since the phase before.
func (l *load) phase(name string, step func() error) error {
	l.mu.Lock()
	for _, c := range l.clients {
		c.count = report.Count{Kind: c.kind, Flows: c.alive}
	}
	l.mu.Unlock()
	if err := step(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	enough := map[*client]int{}
	for _, c := range l.clients {
		enough[c] = c.rounds + 2 // one may be under way
	}
	for _, c := range l.clients {
		for c.rounds < enough[c] {
			l.moved.Wait()
		}
	}
	p := report.Phase{Name: name}
	for _, c := range l.clients {
		p.Counts = append(p.Counts, c.count)
		fmt.Printf("%-40s %+v\n", name, c.count)
	}
	l.phases = append(l.phases, p)
	return nil
}

func (l *load) end() []report.Phase {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.running.Wait()
	return l.phases
}

// frontends returns where the Service web is dialled from outside.
func (n *node) frontends(network string) (all []target) {
	for i, f := range model.Families {
		all = append(all,
			target{n.Client, network, n.Web.Frontend(f)},
			target{n.Client, network, netip.AddrPortFrom(n.Node.Address(f), n.Web.NodePorts[network])},
			target{n.Client, network, netip.AddrPortFrom(netip.MustParseAddr(loadBalancers[i]), 80)})
	}
	return all
}

// clusterIPs returns where the Service web is dialled from the pods or the node.
func (n *node) clusterIPs(from *netlab.Host, network string) (all []target) {
	for _, f := range model.Families {
		all = append(all, target{from, network, n.Web.Frontend(f)})
	}
	return all
}

// open opens a flow to each target.
func open(targets []target) ([]*flow, error) {
	var all []*flow
	for _, t := range targets {
		f, err := t.from.Open(t.network, t.to, limits[t.network])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		a, err := f.Ask()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		all = append(all, &flow{f, t, a.Name})
	}
	return all, nil
}
