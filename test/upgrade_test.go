package test

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	facts "github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// edit replaces what matches a regular expression, which must be there.
type edit struct{ pattern, by string }

// layout is a way in which another release may have written the IPv4 table of
// the same services: an edited listing of ours. It treats packets in the same
// way.
type layout struct {
	name  string
	edits []edit
	// foreign says that this release cannot write this layout, so that there is no way
	// back to it.
	foreign bool
	// lost says that frontends of Services that are not known cannot be kept: their rules cannot
	// be read.
	lost bool
	// forgets says that its clients are bound to endpoints in another way, or
	// not at all.
	forgets bool
}

// without removes sets or chains from a listing.
func without(names string) edit {
	return edit{`(?ms)^\t(set|map|chain) (` + names + `) \{.*?^\t\}\n\n?`, ""}
}

// rule removes the lines with a text.
func rule(text string) edit { return edit{`(?m)^.*` + text + `.*\n`, ""} }

var layouts = []layout{
	{name: "the first one, without affinity and policies", forgets: true, edits: []edit{
		without("local-services|firewalled|source-ranges|local-frontends|(local-)?affinity(-[a-z0-9]+)?|binders|remember|(local-)?recall|(local-)?bind-[a-z0-9-]+"),
		rule("@firewalled"), rule("@local-services"), rule("@local-frontends"), rule("jump (local-)?recall"), rule("jump remember"),
		without("(local-)?sticky-rr-3-[0-9]+"), {`goto (local-)?sticky-rr`, `goto rr`}}},
	{name: "verdicts in the maps of services, and a lookup in each lane", foreign: true, lost: true, edits: []edit{
		without("lanes|choose"), {`(map (?:local-)?services \{\n\t\ttype [^:]*: )classid`, `${1}verdict`}, {` : 3:10c\b`, ` : goto sticky-rr-3-12`}, {` : 3:10d\b`, ` : goto sticky-rr-3-13`},
		{` : 3:104\b`, ` : goto sticky-rr-3-4`}, {` : 3:f\b`, ` : goto rr-3-15`}, {` : 3:([0-9])\b`, ` : goto rr-3-$1`},
		{`meta priority set (ip daddr .*) map (@(local-)?services) meta priority vmap @lanes`, `$1 vmap $2`},
		{`meta priority set numgen inc mod 3 offset 1 goto choose`, `dnat ip to ip daddr . meta l4proto . th dport . numgen inc mod 3 map @endpoints`},
		{`type (ipv4_addr . inet_proto . inet_service) . classid : ipv4_addr . inet_service`, `typeof ip daddr . meta l4proto . th dport . numgen inc mod 2 : ip daddr . th dport`},
		{` \. 0:1 : `, ` . 0 : `}, {` \. 0:2 : `, ` . 1 : `}, {` \. 0:3 : `, ` . 2 : `}, rule("meta priority set none")}},
	{name: "a set, a chain and three rules for each affinity timeout", edits: []edit{
		without("affinity-arrivals|binders|bind-(tcp|udp|sctp)-3600"),
		{`map affinity-timeouts \{\n\t\ttype (.*) : classid`, "set affinity-3600 {\n\t\ttype $1"}, {` : [12]?0:e10\b`, ``},
		{`(?m)^(.*)meta priority set .*update @affinity-arrivals \{[^}]*\} dnat`, "${1}dnat"},
		{`meta priority set .* map @affinity-arrivals meta priority vmap @binders`, `ct original ip daddr . meta l4proto . ct original proto-dst @affinity-3600 goto bind-3600`},
		{`table ip nftproxy \{\n`, "table ip nftproxy {\n" + formerBinder}}},
	{name: "base chains with other priorities", edits: []edit{
		{`prerouting priority dstnat - 1`, `prerouting priority -110`}, {`output priority -101`, `output priority -90`},
		{`postrouting priority srcnat - 1`, `postrouting priority 90`}}},
	{name: "base chains with other names", edits: []edit{{`chain (prerouting|output|postrouting|bind-input) `, `chain nat-$1 `}}},
	{name: "base chains that were lanes", edits: []edit{
		{`chain (prerouting|output|postrouting|bind-input) `, `chain nat-$1 `}, {`\brr-3-8\b`, `output`}}},
	{name: "another policy", foreign: true, edits: []edit{{`(hook output priority [^;]+; policy) accept`, `$1 drop`}}},
	{name: "other lanes", edits: []edit{{`\brr-3-`, `lane-3-`}, {`\bdispatch\b`, `services-of-all`}, {`\brefuse\b`, `no-endpoints`}}},
	{name: "rules in another order", edits: []edit{
		{`(?m)^(.*hairpin masq.*\n)(.*cluster-ips masq.*\n)`, "$2$1"}}},
	{name: "a set with another key", edits: []edit{
		without("local-frontends"), rule("@local-frontends"),
		{`set hairpin`, "set local-frontends {\n\t\ttype ipv4_addr\n\t}\n\tset hairpin"}}},
	{name: "a set that was a map", foreign: true, edits: []edit{
		{`(?s)set cluster-ips \{\s+type ipv4_addr\s+elements = \{ 10.96.0.1, 10.96.0.2 \}`,
			"map cluster-ips {\n\t\ttype ipv4_addr : verdict\n\t\telements = { 10.96.0.1 : goto refuse, 10.96.0.2 : goto refuse }"},
		{`ip daddr @cluster-ips goto refuse`, `ip daddr vmap @cluster-ips`}, rule("original ip daddr @cluster-ips")}},
	{name: "a map with other data", foreign: true, edits: []edit{
		{`(?m)^(\tmap local-services \{\n\t\ttype .*: )classid$`, `${1}mark`}, rule("@local-services")}},
	{name: "sets with other flags", foreign: true, edits: []edit{
		{`(?m)^(\tset (masq-frontends|affinity-endpoints) \{\n.*\n)`, "$1\t\tflags timeout\n"}}},
	{name: "an interval set", edits: []edit{{`(?m)^(\tset cluster-ips \{\n.*\n)`, "$1\t\tflags interval\n"}}},
	{name: "a smaller affinity map", edits: []edit{{`size 1000000`, `size 1000`}}},
	{name: "maps that count", edits: []edit{{`(?m)^(\tmap (services|local-services) \{\n.*\n)`, "$1\t\tcounter\n"}}},
	{name: "one map that counts", edits: []edit{{`(?m)^(\tmap services \{\n.*\n)`, "$1\t\tcounter\n"}}},
	{name: "other comments", edits: []edit{{`comment "default/`, `comment "`}}},
	{name: "missing sets", edits: []edit{
		without("firewalled|source-ranges|service-cidrs"), rule("@firewalled"), rule("@service-cidrs")}},
	{name: "more of everything", foreign: true, edits: []edit{
		{`table ip nftproxy \{\n`, `table ip nftproxy {
	set ports { type inet_service; elements = { 22 }; }
	map extra { type ipv4_addr : verdict; elements = { 203.0.113.99 : goto more }; }
	map nodes { type ipv4_addr : ipv4_addr; flags interval; }
	chain more { counter accept; }
	chain guard { type filter hook forward priority 0; policy accept; tcp dport @ports counter jump more; ip saddr vmap @extra; }
	chain early { type nat hook prerouting priority -150; policy accept; ip daddr vmap @extra; }
`}}},
}

// formerBinder is a chain of version 0.1 for an affinity timeout of 3600 s.
var formerBinder = func() string {
	const original = "ct original ip daddr . meta l4proto . ct original proto-dst"
	const reply = "ct reply ip saddr . ct reply proto-src"
	var b strings.Builder
	b.WriteString("\tchain bind-3600 {\n")
	for _, p := range model.Protocols {
		fmt.Fprintf(&b, "\t\tmeta l4proto %s %s . %s @affinity-endpoints update @affinity { %[2]s . ct original ip saddr timeout 1h : %[3]s } accept\n", p, original, reply)
		fmt.Fprintf(&b, "\t\tmeta l4proto %s %s . %s @affinity-endpoints accept\n", p, original, reply)
		fmt.Fprintf(&b, "\t\tmeta l4proto %s delete @affinity { %s . ct original ip saddr : %s } drop\n", p, original, reply)
	}
	b.WriteString("\t}\n")
	return b.String()
}()

// other returns the listing of a table in another layout.
func (l layout) other(t *testing.T, listing string) string {
	t.Helper()
	for _, e := range l.edits {
		next := regexp.MustCompile(e.pattern).ReplaceAllString(listing, e.by)
		if next == listing {
			t.Fatalf("nothing matches %s in\n%s", e.pattern, listing)
		}
		listing = next
	}
	return listing
}

// TestOtherLayouts: 13.4 and 13.14. Tables of other releases are changed to our
// layout, and back, during new flows: none is lost, connections go on, and
// clients keep their endpoints. Services that are not known are kept (14.25). The tables have no owner, are ours, or were
// left by a former owner.
func TestOtherLayouts(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			c := newCluster(t, 4)
			web := service{Name: "web", N: 1, Pods: c.Pods[1:]}
			sticky := service{Name: "sticky", N: 2, Pods: c.Pods[1:], Affinity: long}
			c.apply(web, sticky)
			fresh := c.declared()
			table := c.nft("list", "table", "ip", "nftproxy")
			c.nftLoad("delete table ip nftproxy\n" + l.other(t, table))
			if c.declared() == fresh && l.name != "other comments" {
				t.Fatal("the layout is the same")
			}
			k := c.open()
			theirs, _, err := k.Read()
			if err != nil {
				t.Fatal(err)
			}
			c.keep(t, k, theirs, l.lost)
			c.nftLoad("table ip nftproxy\ndelete table ip nftproxy\n" + l.other(t, table))
			served := c.clients(web, sticky)
			f := c.startFlood(c.Pods[0], web)
			check := func(step string) {
				t.Helper()
				f.wait(t, 300)
				served.goOn(t, step, l.forgets)
				if diff := cmp.Diff(fresh, c.declared()); diff != "" {
					t.Errorf("%s: declared unlike a fresh one (-fresh +got):\n%s", step, diff)
				}
				c.mustRun(0, c.command("diff"))
			}
			back := func(step string, own bool) {
				t.Helper()
				if l.foreign {
					return
				}
				k := c.open()
				if own && c.owns() {
					if _, err := k.Own(); err != nil {
						t.Fatal(err)
					}
				}
				a := apply.New(k, slog.New(slog.DiscardHandler))
				if own && c.owns() {
					a.Owns = true
				}
				if _, err := a.Apply(nft.FromNothing(theirs)); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				if plan, _, err := a.Plan(theirs); err != nil || !plan.Empty() {
					t.Errorf("%s: %d changes are left, %v", step, len(plan.Changes), err)
				}
				f.wait(t, 300)
				served.goOn(t, step, l.forgets)
				if err := k.Close(); err != nil {
					t.Fatal(err)
				}
			}
			f.wait(t, 300)
			plain := c.command("apply")
			// Without these, apply goes on to count what the rules in the kernel count.
			plain.Args = append(plain.Args, "--service-metrics=false", "--endpoint-metrics=false")
			c.mustRun(0, plain)
			check("apply")
			back("back, without an owner", false)
			d := c.start()
			c.owned()
			check("made ours")
			d.stop(t)
			back("back, with an owner", true)
			d = c.start()
			c.owned()
			check("taken over")
			d.stop(t)
			f.check(t)
		})
	}
}

// keep applies the rules without any Service, beside those that the kernel has and which may be in a
// part of the source that cannot be read (14.25): they serve the same, in our layout.
func (c *cluster) keep(t *testing.T, k *kernel.Conn, theirs *nft.Ruleset, lost bool) {
	t.Helper()
	kept := facts.Keep(theirs, func(string) bool { return true })
	if (len(kept.Lost) > 0) != lost {
		t.Errorf("cannot be kept: %v", kept.Lost)
	}
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1", Counters: true, Observe: model.Observe{Level: model.ObserveFailures, Group: 7}}, nil, nil)
	_, delta := render.StartKeeping(router.Routing(), kept.Kept)
	if _, err := apply.New(k, slog.New(slog.DiscardHandler)).Apply(delta); err != nil {
		t.Fatal(err)
	}
	ours, _, err := k.Read()
	if err != nil {
		t.Fatal(err)
	}
	before, after := facts.Read(theirs.Table(model.IPv4)), facts.Read(ours.Table(model.IPv4))
	n := 0
	for f := range before.All() {
		if kept.Lost[f.Port.Service] != "" {
			continue
		}
		n++
		if now := after.Frontend(f.Frontend); now == nil || !workload.SameFrontend(*now, *f) {
			t.Errorf("%s was %+v, is %+v", f.Frontend, f, now)
		}
	}
	if !lost && n == 0 {
		t.Error("nothing was kept")
	}
}

// open returns a connection to nf_tables of the node.
func (c *cluster) open() (k *kernel.Conn) {
	c.t.Helper()
	if err := c.Node.Do(func() (err error) { k, err = kernel.Open(); return err }); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = k.Close() })
	return k
}

// owned waits until a started daemon has taken over the table.
func (c *cluster) owned() {
	c.t.Helper()
	c.applied()
	if !c.owns() {
		return
	}
	eventually(c.t, func() error {
		if got := c.nft("list", "table", "ip", "nftproxy"); !strings.Contains(got, "flags owner") {
			return errors.New("the table has no owner")
		}
		return nil
	})
	c.applied()
}

// declared returns the lines of our IPv4 table without its owner, the elements,
// and what depends on the order in which objects were made.
func (c *cluster) declared() string {
	c.t.Helper()
	lines := strings.Split(c.nft("--terse", "list", "table", "ip", "nftproxy"), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "\tflags") || strings.HasPrefix(l, "table") || l == "" || l == "\t}"
	})
	for i, l := range lines {
		if !strings.HasPrefix(l, "\t\t") { // rules stay with their chain
			continue
		}
		lines[i] = lines[i-1] + " " + strings.TrimSpace(l)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// clients have connections, or are bound to endpoints.
type clients struct {
	c      *cluster
	sticky service
	open   []flow
	bound  []flow
}

func (c *cluster) clients(web, sticky service) clients {
	c.t.Helper()
	// The first client of a new table gets the first endpoint.
	openFlows(c.t, c.Client, sticky.clusterIP)
	return clients{c, sticky, openFlows(c.t, c.Client, web.clusterIP), openFlows(c.t, c.Pods[0], sticky.clusterIP)}
}

// goOn checks that connections are with the endpoints that they had, and that
// new ones of bound clients go to these.
func (s clients) goOn(t *testing.T, step string, forgets bool) {
	t.Helper()
	for _, f := range slices.Concat(s.open, s.bound) {
		if f.network == "tcp" { // the node soon forgets datagrams, for the flood
			f.goesOn(t, step)
		}
	}
	for _, f := range s.bound {
		if forgets && f.family == model.IPv4 {
			continue
		}
		if got := askDuringFlood(t, s.c.Pods[0], f.network, s.sticky.clusterIP(f.family)).Name; got != f.peer {
			t.Errorf("%s: a client of %s gets %s over %s %s", step, f.peer, got, f.network, f.family)
		}
	}
}

// foreignOwnTables are tables of another program under our name, which no
// release of ours wrote.
var foreignOwnTables = []struct{ name, script string }{
	{"nothing", `table ip nftproxy { }`},
	{"a firewall", `table ip nftproxy {
		set services { type inet_service; flags interval; elements = { 22, 8000-9000 }; }
		chain prerouting { type filter hook prerouting priority 0; policy drop; tcp dport @services accept; }
		chain dispatch { ip saddr 192.0.2.0/24 tcp dport { 80, 443 } counter drop; }
	}`},
	{"chains in a circle of maps", `table ip nftproxy {
		chain rr-3-8 { }
		chain mine { }
		map services { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 80 : goto mine, 10.96.0.9 . tcp . 80 : drop }; }
		map mine { type ipv4_addr : verdict; elements = { 192.0.2.2 : goto rr-3-8 }; }
		chain mine { ip saddr vmap @mine; }
		chain rr-3-8 { drop; }
	}`},
	{"objects", `table ip nftproxy {
		counter total { }
		quota much { over 1 mbytes; }
		limit few { rate 1/second; }
		chain prerouting { type nat hook prerouting priority -100; policy accept; counter name total; }
	}`},
	{"a table that sleeps", `table ip nftproxy {
		flags dormant;
		chain prerouting { type nat hook prerouting priority -100; policy accept; }
	}`},
}

// TestForeignTableOfOurName: one-shot mode and both kinds of daemons replace a
// foreign table under our name by the one that they make without it.
func TestForeignTableOfOurName(t *testing.T) {
	for _, their := range foreignOwnTables {
		t.Run(their.name, func(t *testing.T) {
			c := newCluster(t, 2)
			web := service{Name: "web", N: 1, Pods: c.Pods}
			c.apply(web)
			fresh, flags := c.declared(), c.flags
			serves := func(by string) {
				t.Helper()
				if diff := cmp.Diff(fresh, c.declared()); diff != "" {
					t.Errorf("%s: declared unlike a fresh one (-fresh +got):\n%s", by, diff)
				}
				c.in(t).answers(t, web)
			}
			load := func() { c.nftLoad("table ip nftproxy; delete table ip nftproxy\n" + their.script) }
			load()
			c.apply(web)
			serves("apply")
			load()
			c.flags = append(flags[:len(flags):len(flags)], "--no-table-owner")
			d := c.start()
			c.applied()
			serves("run --no-table-owner")
			load()
			eventually(t, func() error {
				if !strings.Contains(d.log.String(), "rules repaired") {
					return errors.New("no repair is logged")
				}
				return nil
			})
			serves("repair")
			d.stop(t)
			load()
			c.flags = flags
			d = c.start()
			c.owned()
			serves("run")
			d.stop(t)
		})
	}
}
