//go:build guest

// Needs flow tables (CONFIG_NF_FLOW_TABLE), which Debian's kernels have: "make test-kernels"
// selects it.

package test

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// flowtables are rules of other programs that move established connections to a flow table, by
// name; %s stands for the devices. Table, chains and conditions are those that these programs
// write.
var flowtables = map[string]string{
	// kindnet: one table for both families, connections of more than a number of packets.
	"kindnet": `
table inet kindnet-fastpath {
	flowtable kindnet-flowtables { hook ingress priority filter; devices = { %[1]s }; }
	chain kindnet-fastpath-chain {
		type filter hook forward priority -101; policy accept;
		ct state established ct packets > 5 flow add @kindnet-flowtables counter
	}
}`,
	// Calico from 3.34 on, with nftablesFlowTableOffload: a table for each family, established
	// connections, except for those of endpoints in a set.
	"Calico": `
table ip calico {
	flowtable cali-flows { hook ingress priority filter; devices = { %[1]s }; counter; }
	set cali40no-offload { type ipv4_addr; }
	chain filter-FORWARD { type filter hook forward priority filter; policy accept; ct state established jump cali-offload; }
	chain cali-offload { ip saddr @cali40no-offload return; ip daddr @cali40no-offload return; meta l4proto { tcp, udp } flow add @cali-flows; }
}
table ip6 calico {
	flowtable cali-flows { hook ingress priority filter; devices = { %[1]s }; counter; }
	set cali60no-offload { type ipv6_addr; }
	chain filter-FORWARD { type filter hook forward priority filter; policy accept; ct state established jump cali-offload; }
	chain cali-offload { ip6 saddr @cali60no-offload return; ip6 daddr @cali60no-offload return; meta l4proto { tcp, udp } flow add @cali-flows; }
}`,
}

// answerTime is how long an emulated machine may take for an answer, startTime for the daemon.
const answerTime, startTime = 5 * time.Second, 2 * time.Minute

// forwarded counts packets that are forwarded in the usual way: those of flow tables never come
// to this hook.
const forwarded = `
table inet seen {
	counter forwarded { }
	chain forward { type filter hook forward priority mangle; counter name forwarded; }
}`

// forEachFlowtable runs a test beside each of them.
func forEachFlowtable(t *testing.T, pods int, f func(t *testing.T, c *cluster)) {
	for name, rules := range flowtables {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, pods)
			if err := c.AddBridgedPods(1); err != nil {
				t.Fatal(err)
			}
			c.echo(c.Bridged...)
			c.offload(rules)
			f(t, c)
		})
	}
}

// offload adds a flow table of all devices of the node.
func (c *cluster) offload(rules string) {
	c.t.Helper()
	var devices []string
	err := c.Node.Do(func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			if i.Name != "lo" && i.Flags&net.FlagUp != 0 {
				devices = append(devices, strconv.Quote(i.Name)) // some are words of nft
			}
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.nftLoad(fmt.Sprintf(rules, strings.Join(devices, ", ")) + forwarded)
	c.set("net.netfilter.nf_conntrack_acct", "1") // for "ct packets"
}

var packetsOf = regexp.MustCompile(`packets (\d+)`)

// packets returns how many packets were forwarded in the usual way.
func (c *cluster) packets(t *testing.T) int {
	t.Helper()
	found := packetsOf.FindStringSubmatch(c.nft("list", "counter", "inet", "seen", "forwarded"))
	if found == nil {
		t.Fatal("no counter of forwarded packets")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// isFast waits until packets of a flow go by way of a flow table.
func (c *cluster) isFast(t *testing.T, f flow) {
	t.Helper()
	const questions = 10
	netlab.Eventually(t, startTime, func() error {
		before := c.packets(t)
		for range questions {
			if got, err := f.Ask(); err != nil || got.Name != f.peer {
				return fmt.Errorf("%s %s: got %v, %v, want an answer of %s", f.network, f.family, got, err, f.peer)
			}
		}
		if n := c.packets(t) - before; n > questions/2 { // of 20 and more
			return fmt.Errorf("%s %s: %d packets of %d questions passed the hook forward", f.network, f.family, n, questions)
		}
		return nil
	})
}

// moves checks that the next datagrams of a flow go to another endpoint.
func (f *flow) moves(t *testing.T, to string) {
	t.Helper()
	eventually(t, func() error {
		if got, err := f.Ask(); err != nil || got.Name != to {
			return fmt.Errorf("%s %s: got %v, %v, want an answer of %s", f.network, f.family, got, err, to)
		}
		return nil
	})
	f.peer = to
}

// startServing starts the daemon and waits until it serves s.
func (c *cluster) startServing(s service) {
	c.t.Helper()
	c.start()
	c.awaitServing(s)
}

// awaitServing waits until s is served.
func (c *cluster) awaitServing(s service) {
	c.t.Helper()
	for _, family := range model.Families {
		netlab.Eventually(c.t, startTime, func() error {
			_, err := c.Client.Ask("tcp", s.clusterIP(family), answerTime)
			return err
		})
	}
}

// A flow table changes nothing about which endpoint a connection has: an endpoint that leaves
// (9.1), a Service that is removed (9.1), a reset by conntrack cleanup (9.4), clients that are denied.
func TestFlowtables(t *testing.T) {
	forEachFlowtable(t, 2, func(t *testing.T, c *cluster) {
		bridged := c.Bridged[0]
		web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
		c.write(web)
		c.startServing(web)
		flows := c.openEachFast(t, web, c.Pods[1], bridged)
		for _, to := range []*netlab.Host{c.Pods[1], bridged} {
			web.Pods = []*netlab.Host{to}
			c.movesFast(t, flows, web)
		}
		c.removed(t, flows)
	})
}

// openEachFast opens flows to each kind of frontend from the client, and to the ClusterIP from
// pods, and waits until all are in the flow table.
func (c *cluster) openEachFast(t *testing.T, web service, pods ...*netlab.Host) (flows []flow) {
	t.Helper()
	for _, to := range []func(model.Family) netip.AddrPort{
		web.clusterIP, web.loadBalancerIP,
		func(f model.Family) netip.AddrPort { return web.nodePort(c.Node, f) },
	} {
		flows = append(flows, openFlowsFor(t, c.Client, to, answerTime)...)
	}
	for _, from := range pods {
		flows = append(flows, openFlowsFor(t, from, web.clusterIP, answerTime)...)
	}
	for _, f := range flows {
		c.isFast(t, f)
	}
	return flows
}

// openFastFrom opens flows from a host, and waits until all are in a flow table.
func (c *cluster) openFastFrom(t *testing.T, from *netlab.Host, to func(model.Family) netip.AddrPort) []flow {
	t.Helper()
	flows := openFlowsFor(t, from, to, answerTime)
	c.areFast(t, flows)
	return flows
}

// areFast waits until all flows are in a flow table.
func (c *cluster) areFast(t *testing.T, flows []flow) {
	t.Helper()
	for _, f := range flows {
		c.isFast(t, f)
	}
}

// movesFast replaces the endpoint of a Service: datagrams move to the new one, and all flows
// are in the flow table again.
func (c *cluster) movesFast(t *testing.T, flows []flow, web service) {
	t.Helper()
	c.write(web)
	c.goTo(t, flows, web)
}

// goTo waits until datagrams go to the endpoint of a Service, and all flows are in the flow table.
func (c *cluster) goTo(t *testing.T, flows []flow, web service) {
	t.Helper()
	for i := range flows {
		if f := &flows[i]; f.network == "udp" {
			f.moves(t, web.Pods[0].Name)
		}
	}
	c.areFast(t, flows)
}

// removed removes all Services: TCP goes on, and datagrams are not answered any more.
func (c *cluster) removed(t *testing.T, flows []flow) {
	t.Helper()
	c.write()
	c.cut(t, flows, "the Service is removed")
}

// cut waits until datagrams are not answered any more; TCP goes on.
func (c *cluster) cut(t *testing.T, flows []flow, after string) {
	t.Helper()
	for _, f := range flows {
		if f.network == "tcp" {
			f.goesOn(t, after)
			continue
		}
		f.Within(time.Second)
		eventually(t, func() error {
			if got, err := f.Ask(); err == nil {
				return fmt.Errorf("udp %s: %s, and %s answers", f.family, after, got.Name)
			}
			return nil
		})
	}
}

// 4.76, 9.4: clients that are denied while their connections are in a flow table.
func TestFlowtablesCut(t *testing.T) {
	forEachFlowtable(t, 2, func(t *testing.T, c *cluster) {
		c.flags = append([]string{"--conntrack-tcp-cleanup"}, c.flags...)
		web, api := service{Name: "web", N: 1, Pods: c.Pods[:1]}, service{Name: "api", N: 2, Pods: c.Pods[:1]}
		c.write(web, api)
		c.startServing(api)
		denied, left := openFlowsFor(t, c.Client, web.clusterIP, answerTime), openFlowsFor(t, c.Client, api.clusterIP, answerTime)
		for _, f := range append(denied, left...) {
			c.isFast(t, f)
		}
		web.Annotations, api.Pods = listed(nil, addressesOf(c.Client)), c.Pods[1:2]
		c.write(web, api)
		for i := range left {
			if left[i].network == "udp" {
				left[i].moves(t, "pod-1")
			}
		}
		for _, f := range append(denied, left[0], left[2]) {
			if f.network == "udp" && f.peer == "pod-1" {
				continue
			}
			eventually(t, func() error {
				if got, err := f.Ask(); err == nil {
					return fmt.Errorf("%s %s: still answered by %s", f.network, f.family, got.Name)
				}
				return nil
			})
		}
	})
}

// Limits count connections of flow tables, and forget those that have ended; session affinity
// binds a client whose connections are there.
func TestFlowtablesCount(t *testing.T) {
	forEachFlowtable(t, 2, func(t *testing.T, c *cluster) {
		counted := service{Name: "counted", N: 1, Pods: c.Pods[:2], Annotations: map[string]string{"nftproxy.dev/max-connections-per-client": "2"}}
		sticky := service{Name: "sticky", N: 2, Pods: c.Pods[:2], Affinity: long}
		c.write(counted, sticky)
		c.startServing(sticky)
		for _, family := range model.Families {
			to := counted.clusterIP(family)
			var open []flow
			for range 2 {
				f := c.openFast(t, "tcp", to, family)
				open = append(open, f)
			}
			if _, err := c.Client.Ask("tcp", to, answerTime); err == nil {
				t.Errorf("%s: a third connection was answered, want at most two at once", family)
			}
			open[0].Close()
			eventually(t, func() error {
				_, err := c.Client.Ask("tcp", to, answerTime)
				return err
			})
			first := c.openFast(t, "tcp", sticky.clusterIP(family), family)
			for range 5 {
				got, err := c.Client.Ask("tcp", sticky.clusterIP(family), answerTime)
				if err != nil || got.Name != first.peer {
					t.Errorf("%s: got %v, %v, want an answer of %s, which the client is bound to", family, got, err, first.peer)
				}
			}
		}
	})
}

// openFast opens a flow and waits until a flow table has it.
func (c *cluster) openFast(t *testing.T, network string, to netip.AddrPort, family model.Family) flow {
	t.Helper()
	opened, err := c.Client.Open(network, to, answerTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	answer, err := opened.Ask()
	if err != nil {
		t.Fatal(err)
	}
	f := flow{opened, network, family, answer.Name}
	c.isFast(t, f)
	return f
}

// A connection that is idle for longer than the flow table keeps it returns to the usual way,
// and is answered there, by the endpoint that it has.
func TestFlowtablesIdle(t *testing.T) {
	forEachFlowtable(t, 2, func(t *testing.T, c *cluster) {
		for _, protocol := range []string{"tcp", "udp"} {
			c.set("net.netfilter.nf_flowtable_"+protocol+"_timeout", "1")
		}
		web := service{Name: "web", N: 1, Pods: c.Pods[:2]}
		c.write(web)
		c.startServing(web)
		for _, f := range openFlowsFor(t, c.Client, web.clusterIP, answerTime) {
			c.isFast(t, f)
			c.isIdle(t, f)
			c.isFast(t, f)
		}
	})
}
