package ecmp

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// speaker announces routes by BGP, with the files that docs/ecmp.md has.
type speaker struct {
	name string
	// script starts it with the configuration in file $1. It takes commands at sockets beside this file.
	script string
	bfd    []string // the command that prints the sessions of BFD, with the directory of the file
}

// BFD gets its turn on a busy machine, too, as the page advises.
var speakers = []speaker{
	{"bird", `exec chrt --rr 1 bird -f -c "$1" -s "${1%/*}/bird.ctl"`,
		[]string{"sh", "-c", `birdc -s "$1/bird.ctl" show bfd sessions`, "sh"}},
	// Its daemons ask for their configuration, as the service of Debian does it.
	{"FRR", `mount -t tmpfs tmpfs /etc/frr
		mount -t tmpfs tmpfs /var/tmp
		cp "$1" /etc/frr/frr.conf
		echo service integrated-vtysh-config >/etc/frr/vtysh.conf
		mkdir /run/frr && mount --bind "${1%/*}" /run/frr && chown frr:frr /run/frr
		for daemon in zebra bfdd bgpd; do
			chrt --rr 1 "/usr/lib/frr/$daemon" -A 127.0.0.1 --log stdout &
			until [ -e "/run/frr/$daemon.vty" ]; do sleep 0.1; done
		done
		vtysh -b
		wait`, []string{"vtysh", "-c", "show bfd peers brief", "--vty_socket"}},
}

// alone runs a script in namespaces of its own for mounts and processes: they all end with the first one.
const alone = `mount --make-rprivate /
	mount -t tmpfs tmpfs /run
	PATH=$PATH:/usr/sbin:/sbin
	`

// startAlone starts a script that gets the name of a file, on a host.
func (l *lab) startAlone(on *netlab.Host, script, file string) {
	l.t.Helper()
	l.start(on, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", alone+script, "sh", file)
}

// part writes what the page has after a mark into a file.
func (l *lab) part(name string) string {
	l.t.Helper()
	page, err := os.ReadFile("../../docs/ecmp.md")
	if err != nil {
		l.t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- begin " + name + " -->\n\n```[a-z]*\n(.*?)```\n\n<!-- end").FindSubmatch(page)
	if found == nil {
		l.t.Fatalf("the page has no %s", name)
	}
	file := filepath.Join(l.t.TempDir(), strings.ReplaceAll(name, " ", "-"))
	if err := os.WriteFile(file, found[1], 0o755); err != nil {
		l.t.Fatal(err)
	}
	return file
}

// newSpeakingLab builds a lab whose nodes announce the address to the first router while they have a
// usable server.
func newSpeakingLab(t testing.TB, s speaker) *lab {
	t.Helper()
	l := newLab(t)
	l.routers[0].TestScript(t, "ip nexthop flush >/dev/null 2>&1") // with the static routes
	router := l.part(s.name + " router")
	l.startAlone(l.routers[0], s.script, router)
	l.bfd = append(slices.Clone(s.bfd), filepath.Dir(router))
	balance := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.Rename(l.part("balance"), balance); err != nil {
		t.Fatal(err)
	}
	for i, n := range l.nodes {
		l.startAlone(n, s.script, l.part(s.name+" node"))
		l.startAlone(n, fmt.Sprintf(`exec %q run -f "$1" --hostname-override node-%d --on-change %q`, binary, i+1, l.part("change")), balance)
		l.servers[i].TestScript(t, `ip route replace default via "10.1.0.$1"`, fmt.Sprint(firstNode+i))
	}
	l.complete()
	return l
}

// complete waits until the first router sends to all nodes, and BFD watches them. BFD begins when BGP is
// established, with a packet a second: a node that is cut off before has its route until the hold time ends.
func (l *lab) complete() {
	l.t.Helper()
	l.routesTo(all...)
	netlab.Eventually(l.t, settles, func() error {
		out, err := l.routers[0].Output(l.bfd[0], l.bfd[1:]...)
		if up := len(regexp.MustCompile(`(?i)\bup\b`).FindAllString(out, -1)); err == nil && up != nodes {
			err = fmt.Errorf("%d sessions are up, want %d:\n%s", up, nodes, out)
		}
		return err
	})
}

// settles is how long a route may take on a busy machine. A speaker waits for up to a minute before it
// connects to a router again that BFD took for dead several times.
const settles = 3 * time.Minute

// routesTo waits until the first router sends to exactly these nodes.
func (l *lab) routesTo(want ...int) {
	l.t.Helper()
	netlab.Eventually(l.t, settles, func() error {
		got, err := l.nextHops()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("routes to nodes %v, want %v", got, want)
		}
		return err
	})
}

// leaves waits until the first router does not send to a node that is cut off. Without BFD that takes
// until the hold time of BGP ends: after 120 to 180 s with FRR, and 160 to 240 s with bird.
func (l *lab) leaves(node int) {
	l.t.Helper()
	netlab.Eventually(l.t, patience, func() error {
		got, err := l.nextHops()
		if err == nil && slices.Contains(got, node) {
			err = fmt.Errorf("routes to nodes %v, and node %d is cut off", got, node)
		}
		return err
	})
}

// nextHops returns the nodes that the first router sends to.
func (l *lab) nextHops() (of []int, err error) {
	out, err := l.routers[0].Output("ip", "route", "show", virtual[model.IPv4].String())
	for n := range nodes {
		if strings.Contains(out, fmt.Sprintf("via "+networks["front"].v4+" ", firstNode+n)) {
			of = append(of, n+1)
		}
	}
	return of, err
}

// refuse makes servers refuse new connections, or accept them again.
func (l *lab) refuse(refuses bool, servers ...int) {
	l.t.Helper()
	for _, n := range servers {
		if refuses {
			l.nft(l.servers[n-1], "table inet dead { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }")
		} else {
			l.nft(l.servers[n-1], "delete table inet dead")
		}
	}
}

// asks checks whether new connections are served.
func (l *lab) asks(served bool) {
	l.t.Helper()
	for _, c := range l.clients {
		ask := func() error {
			_, err := c.Ask("tcp", netip.AddrPortFrom(virtual[model.IPv4], servicePort), hangs)
			return err
		}
		if served {
			netlab.Eventually(l.t, patience, ask)
		} else if ask() == nil {
			l.t.Error("a connection is served without a route")
		}
	}
}

// TestAnnounced is 10.32 with real speakers: the route to a node that is cut off leaves, and so does the
// one to a node that has lost its path to the servers. All leave when no server is usable, and return with
// the first one that is.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	for _, s := range speakers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := newSpeakingLab(t, s)
			l.asks(true)
			l.plug(3, false) // neither the node nor the router loses its carrier
			l.leaves(3)
			l.asks(true)
			l.plug(3, true)
			l.complete()
			l.nft(l.nodes[0], "table inet deaf { chain out { type filter hook output priority 0; tcp dport 8080 drop; }; }")
			l.routesTo(2, 3)
			l.asks(true)
			l.refuse(true, all...)
			l.routesTo()
			l.asks(false)
			l.refuse(false, 2)
			l.routesTo(2, 3)
			l.asks(true)
		})
	}
}

// failures is how often all servers fail for the table.
const failures = 5

// routesTable measures how long routes outlive a node that is cut off and the last server, and how long
// the first server waits for them.
func routesTable(b *testing.B, tables map[string]string) {
	rows := []string{"| | a node is cut off: its route has left after | all servers refuse: the last route has left after | one accepts: the routes are back after |\n|---|---|---|---|"}
	for _, s := range speakers {
		b.Run(s.name, func(b *testing.B) {
			l := newSpeakingLab(b, s)
			var cut, left, back []time.Duration
			for range failures {
				l.plug(3, false)
				begin := time.Now()
				l.leaves(3)
				cut = append(cut, time.Since(begin))
				l.plug(3, true)
				l.complete()
			}
			for range failures {
				l.refuse(true, all...)
				begin := time.Now()
				l.routesTo()
				left = append(left, time.Since(begin))
				l.refuse(false, 1)
				begin = time.Now()
				l.routesTo(all...)
				back = append(back, time.Since(begin))
				l.refuse(false, 2, 3)
			}
			fmt.Fprintf(b.Output(), "%s: cut off: %v, refuse: %v, accept: %v\n", s.name, cut, left, back)
			// Half of them, because the machine may do something else meanwhile.
			if middle(cut) > time.Second || middle(left) > time.Second {
				b.Errorf("%s: routes leave after %v and %v, want 1s", s.name, cut, left)
			}
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", s.name, span(cut), span(left), span(back)))
		})
	}
	if len(rows) == 1+len(speakers) {
		tables["routes"] = strings.Join(rows, "\n")
	}
}

// middle returns the median.
func middle(of []time.Duration) time.Duration { return slices.Sorted(slices.Values(of))[len(of)/2] }

// span returns the median and the longest time, as text.
func span(of []time.Duration) string {
	return fmt.Sprintf("%.2f s, at most %.2f s", middle(of).Seconds(), slices.Max(of).Seconds())
}
