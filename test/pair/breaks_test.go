package pair

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// share is how many of some flows break, or get another server.
type share string

const (
	none   share = "none"
	some   share = "some" // at least one
	all    share = "all"
	varies share = "any number" // depends on which packets are under way
)

// fits reports whether n of some flows are the share.
func (s share) fits(n, of int) bool {
	switch s {
	case none:
		return n == 0
	case some:
		return n > 0
	case all:
		return n == of
	}
	return true
}

// setting is a way to run the two machines.
type setting struct {
	name       string
	conntrackd bool
	edit       func(*machine) // nil: with the files as they are

	// What breaks if a machine is cut off, and UDP flows that get another server.
	requests, streams, datagrams, moved share
}

// defaults are those of the kernel, without rules of our own.
func defaults(m *machine) {
	m.edit("sysctl.conf", "net.netfilter.nf_conntrack_tcp_loose = 0", "net.netfilter.nf_conntrack_tcp_loose = 1",
		"nf_conntrack_tcp_be_liberal = 1", "nf_conntrack_tcp_be_liberal = 0")
	m.edit("nftables.conf", "ct state invalid counter drop", "ct state invalid counter")
}

func roundRobin(m *machine) {
	m.editAll("web.yaml", "scheduler: source-hash", "scheduler: round-robin")
}

func masquerade(m *machine) {
	m.editAll("web.yaml", "clientAddresses: keep", "clientAddresses: masquerade")
}

// late makes the connections arrive a second after the addresses, as if there were
// hundreds of thousands of them.
func late(m *machine) { m.edit("keepalived/connections", "master)\n", "master)\n\tsleep 1\n") }

// commonSource masquerades by an address that moves.
func commonSource(m *machine) {
	masquerade(m)
	m.edit("nftables.conf", "# chain postrouting", "chain postrouting", "# \ttype nat", "\ttype nat",
		"# \toifname \"back\" ct status dnat snat ip to", "\toifname \"back\" ct status dnat snat ip to",
		"# \toifname \"back\" ct status dnat snat ip6 to", "\toifname \"back\" ct status dnat snat ip6 to", "# }", "}")
}

func both(a, b func(*machine)) func(*machine) {
	return func(m *machine) {
		a(m)
		b(m)
	}
}

var settings = []setting{
	{"the files of this page", true, nil, none, none, none, none},
	{"`round-robin` instead of `source-hash`", true, roundRobin, none, none, none, varies},
	{"without `sysctl.conf` and the rule for invalid packets", true, defaults, varies, varies, none, none},
	{"connections arrive 1 s late", true, late, none, none, none, none},
	{"1 s late, without sysctls and rule", true, both(late, defaults), varies, some, none, none},
	{"masquerade by the address of the gateway", true, commonSource, none, none, none, none},
	{"masquerade by the address of the machine", true, masquerade, some, some, some, none},
	{"no conntrackd", false, nil, all, all, none, none},
	{"no conntrackd, without sysctls and rule", false, defaults, varies, all, none, none},
	{"no conntrackd, without sysctls and rule, `round-robin`", false, both(defaults, roundRobin), some, all, none, some},
}

// BenchmarkSwitch measures what breaks by setting, and checks which flows do. PAGE names
// the page for the table.
func BenchmarkSwitch(b *testing.B) {
	rows := make(map[string]string)
	for _, s := range settings {
		b.Run(strings.ReplaceAll(s.name, "`", ""), func(b *testing.B) { rows[s.name] = s.measure(b) })
	}
	if page := os.Getenv("PAGE"); page != "" && len(rows) == len(settings) && !b.Failed() {
		if err := writeTable(page, rows); err != nil {
			b.Error(err)
		}
	}
}

// measure returns a row of the table.
func (s *setting) measure(b *testing.B) string {
	l := newLab(b)
	for _, m := range []*machine{l.a, l.b} {
		if s.edit != nil {
			s.edit(m)
		}
	}
	l.up(s.conntrackd)
	cut := s.observe(l, l.a, l.b, func() {
		l.a.unplug()
		l.b.owns()
	})
	s.check(b, cut)
	l.a.enters("FAULT", 1)
	l.a.plug()
	l.a.enters("BACKUP", 2)
	planned := s.observe(l, l.b, l.a, func() {
		l.b.keepalived.stop()
		l.a.owns()
		l.b.unplug()
	})
	return "| " + s.name + " | " + cells(cut) + " | " + cells(planned) + " |"
}

// observe returns what flows by one machine, opened before, go through while the other one
// takes over.
func (s *setting) observe(l *lab, from, to *machine, change func()) map[string]*record {
	o := l.startLoad()
	defer o.end()
	to.knows(2 * clients)
	o.take()
	change()
	o.settle()
	seen := o.take()
	for _, kind := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(l.t.Output(), "%s to %s: %s: %v\n", from.Name, to.Name, kind, seen[kind])
	}
	return seen
}

func (s *setting) check(b *testing.B, seen map[string]*record) {
	b.Helper()
	requests, streams, datagrams := seen["requests"], seen["stream"], seen["datagrams"]
	for _, c := range []struct {
		what string
		got  int
		want share
		of   *record
	}{
		{"connections with requests break", requests.broken, s.requests, requests},
		{"streams break", streams.broken, s.streams, streams},
		{"UDP flows break", datagrams.broken, s.datagrams, datagrams},
		{"UDP flows get another server", datagrams.moved, s.moved, datagrams},
		{"clients get no new connections", seen["new connections"].broken, none, seen["new connections"]},
	} {
		if !c.want.fits(c.got, c.of.flows) {
			b.Errorf("%d of %d %s, want %s: %v", c.got, c.of.flows, c.what, c.want, c.of.why)
		}
	}
}

// cells returns the cells of one change.
func cells(seen map[string]*record) string {
	var out []string
	for _, kind := range []string{"requests", "stream", "datagrams", "new connections"} {
		r := seen[kind]
		var parts []string
		if kind == "requests" || kind == "stream" || r.broken > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d", r.broken, r.flows))
		}
		if r.moved > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d move", r.moved, r.flows))
		}
		if r.broken < r.flows {
			parts = append(parts, fmt.Sprintf("%.1f s", r.longest.Seconds()))
		}
		out = append(out, strings.Join(parts, ", "))
	}
	return strings.Join(out, " | ")
}

func writeTable(page string, rows map[string]string) error {
	machine, err := results.ThisMachine()
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Linux %s, %s.\n\n", machine.Kernel, time.Now().UTC().Format(time.DateOnly))
	text.WriteString("| | cut off: requests | streams | UDP | new | planned: requests | streams | UDP | new |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range settings {
		text.WriteString(cmp.Or(rows[s.name], "| "+s.name+" |") + "\n")
	}
	return report.RewriteFile(page, map[string]string{"switch": strings.TrimSuffix(text.String(), "\n")})
}
