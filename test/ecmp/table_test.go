package ecmp

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// share is how many flows that move are kept.
type share string

const (
	every  share = "all"
	none   share = "none"
	varies share = "any number"
)

func (s share) fits(n, of int) bool {
	switch s {
	case every:
		return n == of
	case none:
		return n == 0
	}
	return true
}

var settings = []setting{
	{name: "Balance, masquerade, `round-robin`", scheduler: "round-robin", tcp: none, udp: varies},
	{name: "Balance, masquerade, `source-hash`", scheduler: "source-hash", tcp: none, udp: every},
	{name: "Balance, `keep`, answers by the same node, `round-robin`", scheduler: "round-robin", keep: true, answers: toSameNode, tcp: varies, udp: varies},
	{name: "Balance, `keep`, answers by the same node, `source-hash`", scheduler: "source-hash", keep: true, answers: toSameNode, tcp: every, udp: every},
	{name: "Balance, `keep`, answers by the same node, `maglev`", scheduler: "maglev", keep: true, answers: toSameNode, tcp: every, udp: every},
	{name: "Balance, `keep`, answers by the same node, `maglev-port`", scheduler: "maglev-port", keep: true, answers: toSameNode, tcp: every, udp: every},
	{name: "the same, `source-hash`, and `nf_conntrack_tcp_loose = 0`", scheduler: "source-hash", keep: true, answers: toSameNode, strict: true, tcp: none, udp: every},
	{name: "Balance, `keep`, answers by a fixed node, `source-hash`", scheduler: "source-hash", keep: true, tcp: varies, udp: varies, refuses: true},
	{name: "the same, with conntrackd on all nodes", scheduler: "source-hash", keep: true, synced: true, tcp: varies, udp: varies, refuses: true},
	{name: "Balance, `keep`, answers by the same node, `round-robin`, conntrackd", scheduler: "round-robin", keep: true, answers: toSameNode, synced: true, tcp: varies, udp: varies},
	{name: "Service, `externalTrafficPolicy: Cluster`", scheduler: "source-hash", kubernetes: true, tcp: none, udp: every},
	{name: "Service, `externalTrafficPolicy: Local`", scheduler: "source-hash", kubernetes: true, local: true, tcp: none, udp: none},
	{name: "Service, Cluster, `nftproxy.dev/client-addresses: keep`", scheduler: "source-hash", kubernetes: true, keep: true, tcp: varies, udp: varies, refuses: true},
}

// BenchmarkPage tries what the page has tables of, which are written into the one that PAGE
// names.
func BenchmarkPage(b *testing.B) {
	tables := make(map[string]string)
	b.Run("events", func(b *testing.B) { eventTables(b, tables) })
	b.Run("changes", func(b *testing.B) { changesTable(b, tables) })
	b.Run("affinity", func(b *testing.B) { affinityTable(b, tables) })
	b.Run("path MTU", func(b *testing.B) { pathMTU(b, tables) })
	b.Run("routes", func(b *testing.B) { routesTable(b, tables) })
	if page := os.Getenv("PAGE"); page != "" && len(tables) == 6 && !b.Failed() {
		if err := report.RewriteFile(page, tables); err != nil {
			b.Error(err)
		}
	}
}

// eventTables measures which flows each setting keeps when their path moves to another
// node.
func eventTables(b *testing.B, tables map[string]string) {
	machine, err := results.ThisMachine()
	if err != nil {
		b.Fatal(err)
	}
	var kept strings.Builder
	fmt.Fprintf(&kept, "Linux %s, %s.\n\n", machine.Kernel, time.Now().UTC().Format(time.DateOnly))
	kept.WriteString("| | TCP connections kept, of those that move | UDP flows with the same server | new connections served |\n|---|---|---|---|\n")
	moves := make(map[string]*observed)
	measured := 0
	for _, s := range settings {
		b.Run(strings.ReplaceAll(s.name, "`", ""), func(b *testing.B) {
			kept.WriteString(s.measure(b, moves))
			measured++
		})
	}
	if measured == len(settings) { // all are selected
		tables["kept"], tables["moved"] = strings.TrimSuffix(kept.String(), "\n"), movesTable(moves)
	}
}

// measure returns a row of the table of settings, and adds to how many flows each event
// moves.
func (s *setting) measure(b *testing.B, moves map[string]*observed) string {
	l := newLab(b)
	l.serveOn(*s)
	var sum observed
	for _, e := range events {
		o := l.happen(e)
		sum.add(o)
		if moves[e.name] == nil {
			moves[e.name] = &observed{}
		}
		if !s.refuses {
			moves[e.name].add(o)
		}
		if s.refuses && o.failed > 0 {
			break // as many would be refused after any other event
		}
	}
	for _, c := range []struct {
		what string
		got  tally
		want share
	}{{"TCP connections", sum.tcp, s.tcp}, {"UDP flows", sum.udp, s.udp}} {
		if !c.want.fits(c.got.kept, c.got.moved) || c.got.flows == 0 || c.got.moved == 0 && !s.refuses {
			b.Errorf("%v %s kept, want %s", c.got, c.what, c.want)
		}
	}
	if sum.failed > 0 != s.refuses {
		b.Errorf("%d of %d connections not opened", sum.failed, sum.opened)
	}
	if s.refuses {
		return fmt.Sprintf("| %s | | | %d of %d |\n", s.name, sum.opened-sum.failed, sum.opened)
	}
	return fmt.Sprintf("| %s | %v | %v | %d of %d |\n", s.name, sum.tcp, sum.udp, sum.opened-sum.failed, sum.opened)
}

// changesTable measures flows that move after an endpoint was added.
func changesTable(b *testing.B, tables map[string]string) {
	rows := []string{"| scheduler | TCP connections kept, of those that move | UDP flows with the same server |\n|---|---|---|"}
	for _, scheduler := range []string{"maglev", "maglev-port", "source-hash", "round-robin"} {
		b.Run(scheduler, func(b *testing.B) {
			l := newLab(b)
			o := l.change(setting{scheduler: scheduler, keep: true, answers: toSameNode})
			if o.failed > 0 || strings.HasPrefix(scheduler, "maglev") && 3*o.tcp.kept < 2*o.tcp.moved {
				b.Errorf("TCP connections kept: %v; %d not opened", o.tcp, o.failed)
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %v | %v |", scheduler, o.tcp, o.udp))
		})
	}
	tables["changed"] = strings.Join(rows, "\n")
}

// affinityTable measures whether the nodes bind a client to the same endpoint.
func affinityTable(b *testing.B, tables map[string]string) {
	rows := []string{"| scheduler | clients with one endpoint, of those whose connections pass both nodes | after a node has lost its bindings |\n|---|---|---|"}
	for _, c := range affinities {
		b.Run(c.scheduler, func(b *testing.B) {
			before, after := c.check(b)
			rows = append(rows, fmt.Sprintf("| `%s` | %v | %v |", c.scheduler, before, after))
		})
	}
	tables["affinity"] = strings.Join(rows, "\n")
}

// movesTable says how many flows each event moves to another node.
func movesTable(moves map[string]*observed) string {
	rows := []string{"| | flows that move |\n|---|---|"}
	for _, e := range events {
		o := moves[e.name]
		n, of := o.tcp.moved+o.udp.moved, o.tcp.flows+o.udp.flows
		rows = append(rows, fmt.Sprintf("| %s | %d of %d (%.0f %%) |", e.name, n, of, 100*float64(n)/float64(of)))
	}
	return strings.Join(rows, "\n")
}
