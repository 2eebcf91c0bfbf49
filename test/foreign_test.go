package test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// foreignScripts are changes that other programs on a node make to rules, as
// nft scripts.
var foreignScripts = []struct{ name, script string }{
	// firewalld up to 0.6 and hand-written firewalls.
	{"a firewall is reloaded after a flush of everything", `flush ruleset
		table inet filter { chain input { type filter hook input priority 0; policy accept; }; }`},
	{"firewalld is reloaded", `table inet firewalld
		delete table inet firewalld
		table inet firewalld { chain nat_PREROUTING { type nat hook prerouting priority -90; }; }`},
	{"kube-proxy cleans up", `table ip kube-proxy
		delete table ip kube-proxy
		table ip6 kube-proxy
		delete table ip6 kube-proxy`},
}

// attacks are changes to our tables.
var attacks = []struct{ name, script, told string }{
	{"the table is deleted", "delete table ip nftproxy", "delete table ip nftproxy"},
	{"both tables are deleted", "delete table ip nftproxy; delete table ip6 nftproxy", "delete table ip6 nftproxy"},
	{"a chain is emptied", "flush chain ip nftproxy dispatch; flush chain ip6 nftproxy dispatch", "delete rule of chain ip nftproxy dispatch"},
	{"a map is emptied", "flush map ip nftproxy services", "} of map ip nftproxy services"},
	{"an endpoint goes elsewhere", "flush map ip6 nftproxy endpoints; add element ip6 nftproxy endpoints { fd00:10:96::1 . tcp . 80 . 0 : fd00::dead . 80 }", "of map ip6 nftproxy endpoints"},
	{"a rule comes first", "insert rule ip nftproxy prerouting accept; insert rule ip nftproxy output accept", "add rule of chain ip nftproxy prerouting"},
}

// owns reports whether the kernel has tables that outlive their owner.
func (c *cluster) owns() bool {
	c.t.Helper()
	var owns bool
	if err := c.Node.Do(func() error {
		k, err := kernel.Open()
		if err != nil {
			return err
		}
		defer k.Close()
		owns, err = k.Own()
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	return owns
}

// listing is nft's listing of our tables, without their counters.
func (c *cluster) listing() string {
	c.t.Helper()
	return c.nft("list", "table", "ip", "nftproxy") + c.nft("list", "table", "ip6", "nftproxy")
}

// answers checks that new connections are answered.
func (c *cluster) answers(t *testing.T, s service) {
	t.Helper()
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		ask(t, c.Client, network, s.clusterIP(family))
	})
}

// started starts the daemon and returns when it serves.
func (c *cluster) started(s service) *daemon {
	c.t.Helper()
	c.write(s)
	d := c.start()
	// The rules do not show that it is running: they may be there already.
	eventually(c.t, func() error {
		_, err := get(c.Node, http.MethodGet, netip.MustParseAddrPort("127.0.0.1:10249"), "/healthz", "")
		return err
	})
	c.applied()
	return d
}

// applied waits until the kernel holds what the file says.
func (c *cluster) applied() {
	c.t.Helper()
	here := *c
	here.flags = clusterCIDR // diff does not have the flags of the daemon alone
	eventually(c.t, func() error {
		cmd := here.command("diff")
		if err := c.Node.Run(cmd); err != nil {
			return fmt.Errorf("diff: %w", err)
		}
		return nil
	})
}

// TestForeignWritesAreRejected: rules and connections are not affected by other
// programs while the daemon runs.
func TestForeignWritesAreRejected(t *testing.T) {
	c := newCluster(t, 2)
	if !c.owns() {
		t.Skip("tables of this kernel do not outlive their owner")
	}
	web := service{Name: "web", N: 1, Pods: c.Pods}
	d := c.started(web)
	flows := openFlows(t, c.Client, web.clusterIP)
	before := c.listing()
	check := func(t *testing.T, after string) {
		t.Helper()
		for _, f := range flows {
			f.goesOn(t, after)
		}
		c.in(t).answers(t, web)
		if diff := cmp.Diff(before, c.listing()); diff != "" {
			t.Errorf("%s: our tables have changed:\n%s", after, diff)
		}
	}
	for _, o := range foreignScripts {
		t.Run(o.name, func(t *testing.T) {
			c.in(t).nftLoad(o.script)
			check(t, o.name)
		})
	}
	for _, o := range attacks {
		t.Run(o.name, func(t *testing.T) {
			cmd := exec.Command("nft", o.script)
			out := c.in(t).mustRunCombined(1, cmd)
			if !strings.Contains(out, "Operation not permitted") {
				t.Errorf("nft says %s", out)
			}
			check(t, o.name)
		})
	}
	c.mustRun(0, c.command("diff"))
	d.stop(t)
}

// mustRunCombined returns what a program prints to both outputs.
func (c *cluster) mustRunCombined(status int, cmd *exec.Cmd) string {
	c.t.Helper()
	out, log := c.mustRunBoth(status, cmd)
	return out + log
}

// TestForeignChangesAreRepaired: if other programs can change our tables
// (13.11), the change is repaired, the log names the process, and connections
// are not affected.
func TestForeignChangesAreRepaired(t *testing.T) {
	for _, o := range attacks {
		t.Run(o.name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.flags = append(c.flags, "--no-table-owner")
			web := service{Name: "web", N: 1, Pods: c.Pods}
			d := c.started(web)
			flows := openFlows(t, c.Client, web.clusterIP)
			cmd := exec.Command("nft", o.script)
			c.mustRun(0, cmd)
			for _, f := range flows {
				f.goesOn(t, o.name)
			}
			eventually(t, func() error {
				if log := d.log.String(); !strings.Contains(log, "rules repaired") {
					return fmt.Errorf("no repair is logged: %s", log)
				}
				return nil
			})
			c.applied()
			c.answers(t, web)
			for _, f := range flows {
				f.goesOn(t, "repaired")
			}
			for _, want := range []string{"process=nft pid=" + strconv.Itoa(cmd.Process.Pid), o.told} {
				if !strings.Contains(d.log.String(), want) {
					t.Errorf("the log does not say %q", want)
				}
			}
			d.stop(t)
		})
	}
}

// TestVanishedTablesReturn: a table that vanishes where it has no owner is back after each of
// eight deletions in a row (13.10): repairs of single elements alone have pauses that double, of
// which the seventh would be longer than this test waits.
func TestVanishedTablesReturn(t *testing.T) {
	c := newCluster(t, 1)
	c.flags = append(c.flags, "--no-table-owner")
	web := service{Name: "web", N: 1, Pods: c.Pods}
	d := c.started(web)
	for n := range 8 {
		c.nft("delete", "table", "ip6", "nftproxy")
		eventually(t, func() error {
			if got := strings.Count(d.log.String(), "rules repaired"); got <= n {
				return fmt.Errorf("deletion %d: %d repairs are logged", n+1, got)
			}
			return nil
		})
	}
	c.applied()
	c.answers(t, web)
	d.stop(t)
}

// TestForeignTablesAreNoDrift: the daemon does nothing when other programs
// change their own tables, and when clients get bound to endpoints or released.
func TestForeignTablesAreNoDrift(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = append(c.flags, "--no-table-owner")
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	d := c.started(web)
	for _, o := range foreignScripts[1:] {
		c.nftLoad(o.script)
	}
	c.answers(t, web)
	c.nft("flush", "map", "ip", "nftproxy", "affinity")
	before := c.generation()
	c.nft("flush", "chain", "ip", "nftproxy", "refuse")
	eventually(t, func() error {
		if g := c.generation(); g != before+2 {
			return fmt.Errorf("generation %d became %d, want one change and one repair", before, g)
		}
		return nil
	})
	eventually(t, func() error {
		if !strings.Contains(d.log.String(), "rules repaired") {
			return fmt.Errorf("the log has no repair: %s", d.log.String())
		}
		return nil
	})
	if n := strings.Count(d.log.String(), "our rules were changed"); n != 1 {
		t.Errorf("%d interventions are logged, want 1", n)
	}
	d.stop(t)
}

// TestBesideRunningOwner: apply and cleanup report which process owns the
// tables and the remedy, and change nothing; read-only commands work. After the
// end of the owner everything works.
func TestBesideRunningOwner(t *testing.T) {
	c := newCluster(t, 2)
	if !c.owns() {
		t.Skip("tables of this kernel do not outlive their owner")
	}
	web := service{Name: "web", N: 1, Pods: c.Pods}
	d := c.started(web)
	before := c.listing()
	other := *c
	other.file = filepath.Join(t.TempDir(), "other.yaml")
	other.write(service{Name: "other", N: 2, Pods: c.Pods[:1]})
	for name, cmd := range map[string]*exec.Cmd{"apply": other.command("apply"), "cleanup": exec.Command(binary, "cleanup")} {
		said := c.mustRunCombined(2, cmd)
		for _, want := range []string{"table ip nftproxy belongs to process " + strconv.Itoa(d.cmd.Process.Pid), `"nftproxy"`, "--no-table-owner"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s does not say %q: %s", name, want, said)
			}
		}
	}
	other.mustRun(1, other.command("diff"))
	c.mustRun(0, c.command("apply")) // nothing to do
	if diff := cmp.Diff(before, c.listing()); diff != "" {
		t.Errorf("our tables have changed:\n%s", diff)
	}
	d.stop(t)
	other.mustRun(0, other.command("apply"))
	c.cleanup()
}

// TestSecondDaemon waits for the end of the first one, logs that once, and
// takes over without a change of the rules.
func TestSecondDaemon(t *testing.T) {
	c := newCluster(t, 2)
	if !c.owns() {
		t.Skip("tables of this kernel do not outlive their owner")
	}
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	first := c.started(web)
	flows := openFlows(t, c.Client, web.clusterIP)
	c.flags = append(c.flags, "--metrics-bind-address=127.0.0.1:0")
	second := c.start()
	eventually(t, func() error {
		if !strings.Contains(second.log.String(), "belongs to process "+strconv.Itoa(first.cmd.Process.Pid)) {
			return fmt.Errorf("the second daemon says %s", second.log.String())
		}
		return nil
	})
	await.Span(2 * time.Second) // some attempts
	if n := strings.Count(second.log.String(), "belongs to"); n != 1 {
		t.Errorf("said %d times", n)
	}
	before := c.generation()
	first.stop(t)
	eventually(t, func() error {
		if g := c.generation(); g != before+1 {
			return fmt.Errorf("generation %d became %d, want one transaction", before, g)
		}
		return nil
	})
	for _, f := range flows {
		f.goesOn(t, "taken over")
	}
	web.Pods = c.Pods[1:]
	c.write(web)
	c.answersFrom(web, "pod-1")
	second.stop(t)
}

// TestOwnershipComesAndGoes: connections and bindings survive when a daemon
// with table ownership follows one without, the reverse, and when a process is
// killed.
func TestOwnershipComesAndGoes(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	c.apply(web)
	flows := openFlows(t, c.Client, web.clusterIP)
	flags := c.flags
	for _, step := range []struct {
		name string
		flag []string
		kill bool
	}{
		{"an owner after apply", nil, false},
		{"an owner after an owner", nil, true},
		{"an owner after a killed one", nil, false},
		{"none after an owner", []string{"--no-table-owner"}, true},
		{"none after none", []string{"--no-table-owner"}, false},
		{"an owner after none", nil, false},
	} {
		c.flags = append(flags[:len(flags):len(flags)], step.flag...)
		d := c.started(web)
		for _, f := range flows {
			f.goesOn(t, step.name)
			// The same client gets the same endpoint as before.
			if got := ask(t, c.Client, f.network, web.clusterIP(f.family)).Name; got != f.peer {
				t.Errorf("%s: a client of %s gets %s", step.name, f.peer, got)
			}
		}
		if step.kill {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		} else {
			d.stop(t)
		}
	}
}

// TestDiffShowsDrift: diff shows drift in words at any time, and apply removes
// it.
func TestDiffShowsDrift(t *testing.T) {
	c := newCluster(t, 1)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods})
	for _, o := range attacks {
		c.nftLoad(o.script)
		c.mustRun(1, c.command("diff"))
		c.mustRun(0, c.command("apply"))
		c.mustRun(0, c.command("diff"))
	}
	c.nft("flush", "map", "ip", "nftproxy", "endpoints")
	if out := c.mustRun(1, c.command("diff")); !strings.Contains(out, "default/web") || !strings.Contains(out, "endpoints") {
		t.Errorf("diff says\n%s", out)
	}
}
