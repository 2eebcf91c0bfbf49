//go:build guest && counting

package test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Figures of docs/fast-path.md. They are of a machine in which each instruction takes a nanosecond.

// 9.30, 9.32: while pods come and go under load, no new request is lost, and within a second of the change
// no pod that has left answers. With rules only, it is the same: a question to a pod that leaves may
// lose its answer.
func TestFastPathChurnInTime(t *testing.T) {
	for _, level := range []string{"off", "all"} {
		t.Run(level, func(t *testing.T) {
			if u := runChurn(t, level); u.last > time.Second {
				t.Errorf("a pod answers %s after it has left, want a second at most", u.last)
			}
		})
	}
}

// Pods of a node, pods that come and go there, and how long it is at rest.
const podsOfNode, podsOfChurn, restTime = 250, 50, time.Minute

// cost has the costs of the daemon on a node with podsOfNode pods.
type cost struct {
	rest         time.Duration // of processor time, in restTime
	machine      time.Duration // of all processes and the kernel, in restTime
	churn        time.Duration // of processor time, for each pod that comes and goes
	transactions float64       // of nf_tables, for each of these
}

// 9.34: what the fast path costs on a node with 250 pods: nothing at rest, one transaction for a pod that
// comes, and none for one that goes.
func TestFastPathCost(t *testing.T) {
	costs := make(map[string]cost)
	measure := func(t *testing.T, level string) {
		t.Run(level, func(t *testing.T) {
			k := newCluster(t, 1).costs(t, level)
			costs[level] = k // one test at a time runs in an emulated machine
			fmt.Fprintf(t.Output(), "--fast-path=%s, %d pods: at rest %s of processor time in %s, all of the machine %s; a pod that comes and goes: %s, %.2f transactions\n",
				level, podsOfNode, k.rest, restTime, k.machine, k.churn, k.transactions)
		})
	}
	t.Run("levels", func(t *testing.T) {
		measure(t, "off")
		measure(t, "all")
	})
	off, all := costs["off"], costs["all"]
	if off.transactions != 0 || all.transactions != 1 {
		t.Errorf("a pod that comes and goes takes %.2f transactions, and %.2f without the fast path, want 1 and none", all.transactions, off.transactions)
	}
	const most = restTime / 1000
	if process, machine := all.rest-off.rest, all.machine-off.machine; process > most || machine > most {
		t.Errorf("at rest, the fast path takes %s of processor time in %s, and the machine %s, want %s at most", process, restTime, machine, most)
	}
}

func (c *cluster) costs(t *testing.T, level string) (k cost) {
	c.flags = append([]string{"--fast-path=" + level}, c.flags...)
	c.nftLoad(forwarded)
	pods, err := netlab.NewPod("pods")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pods.Close() })
	for i := range podsOfNode {
		c.plug(t, pods, fmt.Sprint("there-", i))
	}
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	d := c.start()
	c.awaitServing(web)
	fast := level != "off"
	for _, f := range openFlowsFor(t, c.Client, web.clusterIP, answerTime) {
		if fast {
			c.isFast(t, f)
		}
	}
	if n := strings.Count(c.nft("list", "flowtables"), "there-"); fast && n != podsOfNode {
		t.Errorf("the flow table has %d of %d devices of pods", n, podsOfNode)
	}
	pid := d.cmd.Process.Pid
	c.rest(t, pid, &k)
	c.comeAndGo(t, pid, pods, fast, &k)
	d.stop(t)
	return k
}

// rest measures a time in which nothing happens.
func (c *cluster) rest(t *testing.T, pid int, k *cost) {
	t.Helper()
	generation, before, machine := c.Node.TestGeneration(t), processorTime(t, pid), busy(t)
	await.Span(restTime) // what is measured
	k.rest, k.machine = processorTime(t, pid)-before, busy(t)-machine
	if n := c.Node.TestGeneration(t) - generation; n != 0 {
		t.Errorf("%d transactions at rest", n)
	}
}

// comeAndGo adds and removes pods one by one.
func (c *cluster) comeAndGo(t *testing.T, pid int, pods *netlab.Host, fast bool, k *cost) {
	t.Helper()
	before, generation := processorTime(t, pid), c.Node.TestGeneration(t)
	for i := range podsOfChurn {
		known := c.Node.TestGeneration(t)
		name := fmt.Sprint("came-", i)
		c.plug(t, pods, name)
		eventually(t, func() error {
			if fast && c.Node.TestGeneration(t) == known {
				return fmt.Errorf("device %s is not in the flow table", name)
			}
			return nil
		})
		c.unplug(t, name)
	}
	k.churn = (processorTime(t, pid) - before) / podsOfChurn
	k.transactions = float64(c.Node.TestGeneration(t)-generation) / podsOfChurn
}

// plug gives the node a device of a pod.
func (c *cluster) plug(t *testing.T, pods *netlab.Host, name string) {
	t.Helper()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(pods.Handle())}
	err := c.Node.Do(func() error { return netlink.LinkAdd(pair) })
	for _, h := range []*netlab.Host{pods, c.Node} {
		if err == nil {
			err = h.Do(func() error { return netlink.LinkSetUp(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}}) })
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// processorTime returns the processor time of all threads of a process, also of those that have ended.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	const scheduled = 2 // CPUCLOCK_SCHED of linux/posix-timers_types.h
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Nano())
}

// busy returns how long the processor of the machine has worked, in steps of 10 ms.
func busy(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	var up, idle float64
	if _, err := fmt.Sscan(string(text), &up, &idle); err != nil {
		t.Fatal(err)
	}
	return time.Duration((up - idle) * float64(time.Second)).Round(10 * time.Millisecond)
}
