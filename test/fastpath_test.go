//go:build guest

package test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// fastCluster makes a cluster whose daemon has a fast path, and counts what does not take it.
func fastCluster(t *testing.T, pods int, level string) *cluster {
	c := newCluster(t, pods)
	c.flags = append([]string{"--fast-path=" + level}, c.flags...)
	c.nftLoad(forwarded)
	return c
}

// isSlow checks that all packets of a flow pass the rules.
func (c *cluster) isSlow(t *testing.T, f flow) {
	t.Helper()
	const questions = 10
	before := c.packets(t)
	for range questions {
		f.goesOn(t, "it stays with the rules")
	}
	if n := c.packets(t) - before; n < 2*questions {
		t.Errorf("%s %s: only %d packets of %d questions and answers passed the hook forward", f.network, f.family, n, questions)
	}
}

// leaves waits until packets of a flow pass the rules again.
func (c *cluster) leaves(t *testing.T, f flow) {
	t.Helper()
	eventually(t, func() error {
		before := c.packets(t)
		f.goesOn(t, "it returns to the rules")
		if c.packets(t) == before {
			return fmt.Errorf("%s %s: still in the flow table", f.network, f.family)
		}
		return nil
	})
}

// 9.29, 9.30, 9.32, 9.34: connections of all kinds of frontends and clients take the fast path, also those
// by way of a device that came later. An endpoint is replaced, then the Service is removed.
func TestFastPath(t *testing.T) {
	c := fastCluster(t, 2, "all")
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	c.startServing(web)
	if err := c.AddBridgedPods(1); err != nil {
		t.Fatal(err)
	}
	bridged := c.Bridged[0]
	c.echo(bridged)
	flows := c.openEachFast(t, web, c.Pods[0], c.Pods[1], bridged)
	web.Pods = []*netlab.Host{bridged}
	c.movesFast(t, flows, web)
	c.removed(t, flows)
}

// 9.31, 9.33: connections leave the fast path when their Service avoids it, and those of others come
// back; settings that see, count or cut packets keep connections with the rules.
func TestFastPathSettings(t *testing.T) {
	c := fastCluster(t, 2, "all")
	with := func(name string, n int, annotation, value string) service {
		return service{Name: name, N: n, Pods: c.Pods[:1], Annotations: map[string]string{"nftproxy.dev/" + annotation: value}}
	}
	web, other := service{Name: "web", N: 1, Pods: c.Pods[:1]}, service{Name: "other", N: 2, Pods: c.Pods[:1]}
	stays := []service{
		with("avoids", 3, "fast-path", "avoid"), with("denies", 4, "denied-sources", "192.0.2.200,2001:db8:ffff::1"),
		with("limited", 5, "max-connections", "100"), with("closes", 6, "on-failure", "close"),
	}
	c.write(append([]service{web, other}, stays...)...)
	c.startServing(web)
	var stay []flow
	for _, s := range stays {
		for _, f := range openFlowsFor(t, c.Client, s.clusterIP, answerTime) {
			if f.network == "tcp" || s.Name != "closes" {
				stay = append(stay, f)
			}
		}
	}
	flows, others := c.openFastFrom(t, c.Client, web.clusterIP), c.openFastFrom(t, c.Client, other.clusterIP)
	for _, f := range stay { // the older ones
		c.isSlow(t, f)
	}
	web.Annotations = map[string]string{"nftproxy.dev/fast-path": "avoid"}
	c.write(append([]service{web, other}, stays...)...)
	for _, f := range flows {
		c.leaves(t, f)
		c.isSlow(t, f)
	}
	c.areFast(t, others)
}

// 9.29, 9.33: only Services that ask for it, with --fast-path=services; without one there is no table, and
// when the process ends its connections return to the rules.
func TestFastPathServices(t *testing.T) {
	c := fastCluster(t, 2, "services")
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	d := c.start()
	c.awaitServing(web)
	flows := openFlowsFor(t, c.Client, web.clusterIP, answerTime)
	for _, f := range flows {
		c.isSlow(t, f)
	}
	if tables := c.nft("list", "tables"); strings.Contains(tables, "fast-path") {
		t.Errorf("no Service asks for the fast path, and there is a table: %s", tables)
	}
	web.Annotations = map[string]string{"nftproxy.dev/fast-path": "use"}
	c.write(web)
	c.areFast(t, flows)
	d.stop(t)
	for _, f := range flows {
		c.leaves(t, f)
	}
}

// 9.34: a device that vanishes takes nothing else along, and one of the same name takes its place.
func TestFastPathDevices(t *testing.T) {
	c := fastCluster(t, 3, "all")
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	c.startServing(web)
	flows := c.openFastFrom(t, c.Client, web.clusterIP)
	for i := range 20 {
		name := fmt.Sprint("came", i%2)
		err := c.Node.Do(func() error {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
			if err := netlink.LinkAdd(pair); err != nil {
				return err
			}
			return netlink.LinkSetUp(pair)
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if list := c.nft("list", "flowtables"); !strings.Contains(list, name) {
				return fmt.Errorf("device %s is not in the flow table: %s", name, list)
			}
			return nil
		})
		err = c.Node.Do(func() error { return netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}}) })
		if err != nil {
			t.Fatal(err)
		}
	}
	c.areFast(t, flows)
}

// 9.36: beside a flow table of another program, connections are answered as before, whichever has
// them.
func TestFastPathBesideAnother(t *testing.T) {
	for name, rules := range flowtables {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.flags = append([]string{"--fast-path=all"}, c.flags...)
			c.offload(rules)
			web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
			c.write(web)
			c.startServing(web)
			flows := c.openFastFrom(t, c.Client, web.clusterIP)
			web.Pods = c.Pods[1:2]
			c.movesFast(t, flows, web)
		})
	}
}

// 9.30: rules that come later do not reach a connection on the fast path, and reach new ones; the end
// of its entry in connection tracking ends it.
func TestFastPathSkips(t *testing.T) {
	c := fastCluster(t, 1, "all")
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	c.startServing(web)
	flows := c.openFastFrom(t, c.Client, web.clusterIP)
	c.nftLoad("table inet wall { chain forward { type filter hook forward priority filter; drop; }; }")
	for _, f := range flows {
		for range 10 {
			f.goesOn(t, "a policy drops everything")
		}
		if _, err := c.Client.Ask(f.network, web.clusterIP(f.family), silence); err == nil {
			t.Errorf("%s %s: a policy drops everything, and a new connection is answered", f.network, f.family)
		}
	}
	err := c.Node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		f.Within(silence)
		if got, err := f.Ask(); err == nil {
			t.Errorf("%s %s: its entry is deleted, and %s answers", f.network, f.family, got.Name)
		}
	}
}

// 9.29: no device of this machine takes connections itself.
func TestFastPathHardware(t *testing.T) {
	c := fastCluster(t, 1, "hardware")
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	c.startServing(web)
	netlab.Eventually(t, startTime, func() error {
		if out := c.mustRun(0, exec.Command(binary, "status")); !strings.Contains(out, "NoFastPath: ") || !strings.Contains(out, "no network device offers hardware offload") {
			return fmt.Errorf("the status does not say that no device offers it:\n%s", out)
		}
		return nil
	})
	for _, f := range openFlowsFor(t, c.Client, web.clusterIP, answerTime) {
		c.isSlow(t, f)
	}
}

// 9.31: with --conntrack-tcp-cleanup, connections of TCP stay with the rules; check, explain and trace know
// which connections take the fast path.
func TestFastPathExplained(t *testing.T) {
	c := fastCluster(t, 1, "all")
	c.flags = append(c.flags, "--conntrack-tcp-cleanup")
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	c.startServing(web)
	for _, f := range openFlowsFor(t, c.Client, web.clusterIP, answerTime) {
		if f.network == "tcp" {
			c.isSlow(t, f)
		} else {
			c.isFast(t, f)
		}
	}
	c.has([]string{"check", "--fast-path=all", "--conntrack-tcp-cleanup"}, "of TCP only those to Services and Balances with nftproxy.dev/on-failure: keep")
	to := web.clusterIP(model.IPv4).String()
	for network, takes := range map[string]bool{"tcp": false, "udp": true} {
		for name, said := range map[string]string{
			"explain":    c.mustRun(0, exec.Command(binary, "explain", network, to)),
			"explain -f": c.mustRun(0, exec.Command(binary, "explain", "-f", c.file, "--fast-path=all", "--conntrack-tcp-cleanup", network, to)),
			"trace":      c.followed(&traced{web: web, family: model.IPv4, udp: network == "udp", from: outside}),
		} {
			if strings.Contains(said, takesFastPath) != takes {
				t.Errorf("%s: does %s say that connections take the fast path: %t, want %t:\n%s", network, name, !takes, takes, said)
			}
		}
	}
}
