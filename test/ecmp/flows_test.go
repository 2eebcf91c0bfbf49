package ecmp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// hangs is how long a flow may stand still.
const hangs = 2 * time.Second

// flow is an open connection of a client, or a UDP socket.
type flow struct {
	network string
	from    netip.AddrPort
	to      netip.AddrPort
	open    *netlab.Flow
	server  string // that answered first

	outcome outcome // of the last request
}

// outcome is what happened to a request.
type outcome int

const (
	kept  outcome = iota // the same server answers
	other                // another server answers, to a UDP socket
	reset
	silent // no answer
)

// openFlows opens flows of all clients, both protocols and families. The connections that
// cannot be opened are counted.
func (l *lab) openFlows() (all []*flow, failed int) {
	l.t.Helper()
	for _, c := range l.clients {
		for _, f := range model.Families {
			for _, network := range []string{"tcp", "tcp", "udp"} {
				l.port++
				all = append(all, &flow{network: network, from: netip.AddrPortFrom(c.Address(f), l.port), to: netip.AddrPortFrom(virtual[f], servicePort)})
			}
		}
	}
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() {
			// Three flows for each family of a client.
			open, err := l.clients[i/(3*len(model.Families))].At(f.from.Port()).Open(f.network, f.to, hangs)
			if err != nil {
				return
			}
			if a, err := open.Ask(); err == nil {
				f.open, f.server = open, fmt.Sprint(a.Name, a.Port)
			}
		})
	}
	running.Wait()
	var opened []*flow
	for _, f := range all {
		if f.open == nil {
			failed++
			continue
		}
		opened = append(opened, f)
		l.t.Cleanup(func() { f.open.Close() })
	}
	return opened, failed
}

// ask sends a request over each flow.
func (l *lab) ask(all []*flow) {
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() {
			a, err := f.open.Ask()
			var timeout net.Error
			switch {
			case errors.As(err, &timeout) && timeout.Timeout():
				f.outcome = silent
			case err != nil:
				f.outcome = reset
			case fmt.Sprint(a.Name, a.Port) != f.server:
				f.outcome = other
			default:
				f.outcome = kept
			}
			if err != nil && f.outcome == reset && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
				fmt.Fprintf(l.t.Output(), "%s of %s: %v\n", f.network, f.from, err)
			}
		})
	}
	running.Wait()
}

// watchRules record, on a node, the source of each packet to the virtual addresses.
const watchRules = `table inet watch
delete table inet watch
table inet watch {
	set ipv4 { type ipv4_addr . inet_proto . inet_service; flags dynamic; size 65535; }
	set ipv6 { type ipv6_addr . inet_proto . inet_service; flags dynamic; size 65535; }
	chain prerouting {
		type filter hook prerouting priority raw
		ip daddr 198.51.100.10 add @ipv4 { ip saddr . meta l4proto . th sport }
		ip6 daddr 2001:db8:64::10 add @ipv6 { ip6 saddr . meta l4proto . th sport }
	}
}
`

// watch begins to record which nodes flows pass, from nothing.
func (l *lab) watch() {
	l.t.Helper()
	for _, n := range l.nodes {
		l.nft(n, watchRules)
	}
}

var source = regexp.MustCompile(`(\S+) \. (tcp|udp) \. ([0-9]+)`)

// paths returns the nodes that flows have passed since watch: two, if a router did not know
// the link-layer address of the first one yet.
func (l *lab) paths() map[string][]string {
	l.t.Helper()
	out := make(map[string][]string)
	for _, n := range l.nodes {
		for _, m := range source.FindAllStringSubmatch(n.NFT(l.t, "list", "table", "inet", "watch"), -1) {
			at := m[2] + m[1] + " " + m[3]
			out[at] = append(out[at], n.Name)
		}
	}
	return out
}

func (f *flow) key() string { return fmt.Sprintf("%s%s %d", f.network, f.from.Addr(), f.from.Port()) }

// tally counts flows.
type tally struct{ flows, moved, kept, other, reset, silent int }

func (t *tally) add(o tally) {
	t.flows += o.flows
	t.moved += o.moved
	t.kept += o.kept
	t.other += o.other
	t.reset += o.reset
	t.silent += o.silent
}

// String says what happened to the flows that moved.
func (t tally) String() string {
	s := fmt.Sprintf("%d of %d", t.kept, t.moved)
	for _, n := range []struct {
		count int
		what  string
	}{{t.other, "get another server"}, {t.reset, "reset"}, {t.silent, "silent"}} {
		if n.count > 0 {
			s += fmt.Sprintf(", %d %s", n.count, n.what)
		}
	}
	return s
}

// observed is what events do to the flows that were open, by protocol.
type observed struct {
	tcp, udp tally
	failed   int // connections that could not be opened
	opened   int // flows that should have been opened
}

func (o *observed) add(more observed) {
	o.tcp.add(more.tcp)
	o.udp.add(more.udp)
	o.failed += more.failed
	o.opened += more.opened
}

// observe opens flows, lets something change the routes, asks again, and opens others. A
// flow whose path does not move must not notice.
func (l *lab) observe(event func()) (o observed) {
	l.t.Helper()
	l.watch()
	all, failed := l.openFlows()
	old := l.paths()
	event()
	l.watch()
	l.ask(all)
	now := l.paths()
	for _, f := range all {
		t := &o.tcp
		if f.network == "udp" {
			t = &o.udp
		}
		before, after := old[f.key()], now[f.key()]
		if len(before) > 1 || len(after) > 1 {
			continue // it moves, too, but not by the event
		}
		t.flows++
		if !slices.Equal(before, after) {
			t.moved++
			*map[outcome]*int{kept: &t.kept, other: &t.other, reset: &t.reset, silent: &t.silent}[f.outcome]++
		} else if f.outcome != kept {
			l.t.Errorf("%s %s of %s stays on %s, and ends with %d", f.network, f.to, f.from, after, f.outcome)
		}
	}
	fresh, more := l.openFlows()
	o.opened, o.failed = len(all)+failed+len(fresh)+more, failed+more
	return o
}
