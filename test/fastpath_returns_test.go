//go:build guest

package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// fastTable reports whether the node has the table of the fast path.
func (c *cluster) fastTable() bool {
	c.t.Helper()
	return strings.Contains(c.nft("list", "tables"), "inet nftproxy-fast-path\n")
}

// 9.33: the table of a killed process ends with it. With --no-table-owner it stays, and so do its
// connections, until the next process makes its own.
func TestFastPathKilled(t *testing.T) {
	for _, stays := range []bool{false, true} {
		t.Run(fmt.Sprintf("stays=%t", stays), func(t *testing.T) {
			c := fastCluster(t, 2, "all")
			if stays {
				c.flags = append(c.flags, "--no-table-owner")
			}
			web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
			c.write(web)
			d := c.start()
			c.awaitServing(web)
			flows := c.openFastFrom(t, c.Client, web.clusterIP)
			if err := d.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = d.cmd.Wait() // killed
			if c.fastTable() != stays {
				t.Errorf("the process is killed; its table is there: %t, want %t", !stays, stays)
			}
			for _, f := range flows {
				if stays {
					c.isFast(t, f)
				} else {
					c.leaves(t, f)
				}
			}
			web.Pods = c.Pods[1:]
			c.write(web)
			c.start()
			c.goTo(t, flows, web)
		})
	}
}

// 9.35: a process that may not make namespaces relies on an earlier one with --init-only, until cleanup removes the result.
func TestFastPathInit(t *testing.T) {
	c := fastCluster(t, 1, "all")
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	confined := func(run *exec.Cmd) {
		var err error
		if run.Path, err = exec.LookPath("setpriv"); err != nil {
			t.Fatal(err)
		}
		run.Args = append([]string{"setpriv", "--bounding-set", "-sys_admin"}, run.Args...)
	}
	d := c.start(confined)
	c.awaitServing(web)
	d.logs(t, "the fast path stays off", "--init-only")
	d.stop(t)
	init := c.command("run")
	init.Args = append(init.Args, "--init-only")
	c.mustRun(0, init)
	d = c.start(confined)
	c.awaitServing(web)
	c.openFastFrom(t, c.Client, web.clusterIP)
	d.stop(t)
	const marker = "table inet nftproxy-fast-path-tested\n"
	if tables := c.nft("list", "tables"); !strings.Contains(tables, marker) {
		t.Errorf("no %s in %s", marker, tables)
	}
	c.has([]string{"cleanup"}, "the result of the test for --fast-path")
	if tables := c.nft("list", "tables"); strings.Contains(tables, marker) {
		t.Errorf("cleanup leaves %s in %s", marker, tables)
	}
}

// 9.30: a connection that is idle for longer than the flow table keeps it returns to the rules, and takes
// the fast path again.
func TestFastPathIdle(t *testing.T) {
	c := fastCluster(t, 1, "all")
	for _, protocol := range []string{"tcp", "udp"} {
		c.set("net.netfilter.nf_flowtable_"+protocol+"_timeout", "1")
	}
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	c.startServing(web)
	for _, f := range openFlowsFor(t, c.Client, web.clusterIP, answerTime) {
		c.isFast(t, f)
		c.isIdle(t, f)
		c.isFast(t, f)
	}
}

// isIdle asks less and less often, until a question passes the rules: questions keep a
// connection in the flow table.
func (c *cluster) isIdle(t *testing.T, f flow) {
	t.Helper()
	pause := 250 * time.Millisecond
	eventually(t, func() error {
		pause *= 2
		await.Span(pause)
		before := c.packets(t)
		f.goesOn(t, "it was idle")
		if c.packets(t) == before {
			return fmt.Errorf("%s %s: still in the flow table", f.network, f.family)
		}
		return nil
	})
}

// 5.1, 9.20, 9.30: session affinity, the metrics of Services and a drain see connections on the fast path.
func TestFastPathViews(t *testing.T) {
	c := fastCluster(t, 2, "all")
	file := "--drain-file=" + filepath.Join(t.TempDir(), "drain.yaml")
	c.flags = append(c.flags, "--service-metrics", file)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	c.write(web)
	c.startServing(web)
	first := c.openFast(t, "tcp", web.clusterIP(model.IPv4), model.IPv4)
	before := c.connections(t, "web")
	const more = 5
	for range more {
		got, err := c.Client.Ask("tcp", web.clusterIP(model.IPv4), answerTime)
		if err != nil || got.Name != first.peer {
			t.Errorf("got %v, %v, want an answer of %s, which the client is bound to", got, err, first.peer)
		}
	}
	if n := c.connections(t, "web") - before; n != more {
		t.Errorf("the metrics have %d more connections, want %d", n, more)
	}
	bound := c.Pods[0]
	if first.peer == c.Pods[1].Name {
		bound = c.Pods[1]
	}
	drain := []string{"drain", bound.IPv4.String(), file}
	c.has(drain, "open: 1 TCP\n")
	c.isFast(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.has(drain, "and none is open")
}

// connections returns how many connections of TCP over IPv4 the metrics have of the ClusterIP of a Service.
func (c *cluster) connections(t *testing.T, name string) int {
	t.Helper()
	return int(c.metric(t, fmt.Sprintf(
		`nftproxy_service_connections_total{frontend="ClusterIP",ip_family="IPv4",namespace="default",port="tcp",protocol="TCP",service=%q}`, name)))
}

// metric returns the value of a series of the metrics.
func (c *cluster) metric(t *testing.T, series string) float64 {
	t.Helper()
	a, err := get(c.Node, "GET", metricsAddress, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(a.body, "\n"+series+" ")
	text, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("the metrics have no %s: %v", series, err)
	}
	return value
}
