package test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// foreignTables belong to other programs, including those that kube-proxy would
// have.
const foreignTables = `
table ip filter {
	set blocked { type ipv4_addr; elements = { 203.0.113.99 } }
	chain input { type filter hook input priority filter; ip saddr @blocked counter drop; }
}
table ip kube-proxy {
	map services { type ipv4_addr : verdict; }
}
table ip6 nat {
	chain postrouting { type nat hook postrouting priority srcnat; oifname "nowhere" masquerade; }
}
table inet firewalld { comment "nftproxy"; }
`

// generation returns the number of the last nftables commit on the node.
func (c *cluster) generation() uint32 {
	c.t.Helper()
	return c.Node.TestGeneration(c.t)
}

// foreign lists the tables that are not those of the program.
func (c *cluster) foreign() string {
	c.t.Helper()
	var out strings.Builder
	for _, line := range c.tables() {
		if !strings.HasSuffix(line, " nftproxy") {
			out.WriteString(c.nft(append([]string{"list"}, strings.Fields(line)...)...))
		}
	}
	return out.String()
}

// tables returns lines such as "table ip nftproxy".
func (c *cluster) tables() []string {
	c.t.Helper()
	return strings.Split(strings.TrimSpace(c.nft("list", "tables")), "\n")
}

// varied returns a service of each sort; the second one has no endpoints.
func (c *cluster) varied() []service {
	return []service{
		{Name: "web", N: 1, Pods: c.Pods}, {Name: "empty", N: 2},
		{Name: "sticky", N: 3, Pods: c.Pods, Affinity: long},
		{Name: "near", N: 4, Pods: c.Pods, Internal: "Local", External: "Local"},
		{Name: "ranges", N: 5, Pods: c.Pods, SourceRanges: uplinkRanges},
		{Name: "weighted", N: 6, Pods: c.Pods, Weights: map[*netlab.Host]int{c.Pods[0]: 2, c.Pods[1]: 3}},
		{Name: "random", N: 7, Pods: c.Pods, Annotations: map[string]string{schedulerAnnotation: "random"}},
		{Name: "hash", N: 8, Pods: c.Pods, Annotations: map[string]string{schedulerAnnotation: "source-hash"}},
		{Name: "all", N: 9, Pods: c.Pods, External: "Local", SourceRanges: uplinkRanges, Affinity: short,
			Annotations: map[string]string{schedulerAnnotation: "random"}, Weights: map[*netlab.Host]int{c.Pods[0]: 4}},
	}
}

// askAll lets clients dial every address of the services that have endpoints.
func (c *cluster) askAll(services []service) {
	c.t.Helper()
	forEachFlow(c.t, func(t *testing.T, network string, family model.Family) {
		for _, s := range services {
			for _, frontend := range s.frontends(c.Node, family) {
				if len(s.Pods) > 0 {
					ask(t, c.Client, network, frontend)
					ask(t, c.Node, network, frontend)
				}
			}
		}
	})
}

func TestSecondApplyCommitsNothing(t *testing.T) {
	c := newCluster(t, 2)
	services := c.varied()
	c.apply(services...)
	// What connections leave in the kernel is no reason to commit either.
	c.askAll(services)
	before := c.generation()
	c.apply(services...)
	if after := c.generation(); after != before {
		t.Errorf("generation %d became %d", before, after)
	}
}

func TestDiffExitStatus(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	before := c.generation()
	if out := c.mustRun(1, c.command("diff")); !strings.Contains(out, "default/web") {
		t.Errorf("diff does not name the service:\n%s", out)
	}
	if after := c.generation(); after != before {
		t.Errorf("diff committed: generation %d became %d", before, after)
	}
	c.apply(web)
	if out := c.mustRun(0, c.command("diff")); strings.Contains(out, "default/web") {
		t.Errorf("diff names a service that has not changed:\n%s", out)
	}
	web.Pods = nil
	c.write(web)
	c.mustRun(1, c.command("diff"))
	if err := os.WriteFile(c.file, []byte("kind: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	c.mustRun(2, c.command("diff"))
}

// The output of render is what apply puts into the kernel: after nft loads it,
// nothing is left to change.
func TestRenderedTextLoads(t *testing.T) {
	c := newCluster(t, 2)
	// nft 1.0.6 cannot load what affinity over IPv6 needs.
	services := slices.DeleteFunc(c.varied(), func(s service) bool { return s.Affinity > 0 })
	c.write(services...)
	c.nftLoad(c.mustRun(0, c.command("render")))
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		roundRobin(t, names(t, 6, c.Client, network, services[0].clusterIP(family)), 2)
	})
	c.askAll(services)
	if out := c.mustRun(0, c.command("diff")); strings.Contains(out, "default/") {
		t.Errorf("diff names a service:\n%s", out)
	}
}

func TestForeignTablesStay(t *testing.T) {
	c := newCluster(t, 1)
	c.nftLoad(foreignTables)
	before := c.foreign()
	if !strings.Contains(before, "203.0.113.99") || !strings.Contains(before, "firewalld") {
		t.Fatalf("listing lacks the tables:\n%s", before)
	}
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"render", func() { c.mustRun(0, c.command("render")) }},
		{"diff", func() { c.mustRun(1, c.command("diff")) }},
		{"apply", func() { c.apply(web) }},
		{"apply of no service", func() { c.apply() }},
		{"run", func() {
			c.write(web)
			d := c.start()
			c.answersFrom(web, "pod-0")
			d.stop(t)
		}},
		{"cleanup", c.cleanup},
		{"cleanup of nothing", c.cleanup},
	} {
		step.do()
		if diff := cmp.Diff(before, c.foreign()); diff != "" {
			t.Errorf("%s changed other tables (-before +after):\n%s", step.name, diff)
		}
	}
}

// cleanup removes the tables of the program.
func (c *cluster) cleanup() {
	c.t.Helper()
	c.mustRun(0, exec.Command(binary, "cleanup"))
	if got := fmt.Sprint(c.tables()); strings.Contains(got, " nftproxy") {
		c.t.Errorf("cleanup left %s", got)
	}
}

// 15.1: this kernel may lack SCTP sockets, but it has the rules.
func TestSCTPIsInTheListing(t *testing.T) {
	c := newCluster(t, 1)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods})
	for _, family := range []string{"ip", "ip6"} {
		listing := c.nft("list", "map", family, "nftproxy", "services")
		if n := strings.Count(listing, ". sctp ."); n != 4 {
			t.Errorf("%s: %d SCTP frontends, want 4:\n%s", family, n, listing)
		}
	}
}
