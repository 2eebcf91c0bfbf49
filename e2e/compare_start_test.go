package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// idleTime is how long a proxy is watched that has nothing to do.
const idleTime = 30 * time.Second

// coldStart starts the proxy where there are no rules.
func (c *comparison) coldStart() {
	var took, used []time.Duration
	c.starts.repeat(func(i int) {
		if i > 0 {
			c.stop()
			c.flush()
		}
		begin := c.start()
		last, cpu := c.complete()
		took, used = append(took, last.seen.Sub(begin)), append(used, cpu)
		c.verify()
	})
	c.record(results.ColdStart, results.Record{From: results.FromProcess, Seconds: results.Durations(took)})
	c.record(coldStartCPU, results.Record{From: results.FromProcess, Seconds: results.Durations(used)})
}

// complete waits until the rules are: with the last transaction that adds
// something of what complete rules consist of. It returns that one, and what
// processor time the proxy had used when it came to rest: that of a program that
// it starts counts when it has ended.
func (c *comparison) complete() (last commit, used time.Duration) {
	t := c.c.t
	t.Helper()
	wanted := c.addresses()
	missing := maps.Clone(wanted)
	for len(missing) > 0 {
		last, _ = c.await("all services and endpoints", func(k commit) bool { return overlap(k.added, wanted) })
		for a := range last.added {
			delete(missing, a)
		}
	}
	for _, k := range c.settle() {
		if overlap(k.added, wanted) {
			last = k
		}
	}
	return last, c.proxy.cpu(t)
}

func overlap(a, b map[netip.Addr]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

// idle watches the proxy while it has nothing to do.
func (c *comparison) idle() {
	t := c.c.t
	t.Helper()
	c.settle()
	before := c.proxy.switches(t)
	time.Sleep(idleTime)
	perSecond := float64(c.proxy.switches(t)-before) / idleTime.Seconds()
	if n := c.kernel.pending(t); n > 0 {
		t.Fatalf("%s: %d transactions while nothing changes", c.name, n)
	}
	c.record(idleSwitches, results.Record{PerSecond: results.Values([]float64{perSecond})})
	c.record(memoryAtFirst, results.Record{Memory: c.proxy.memory(t)})
}

// restart stops the proxy and starts it again with all rules in place.
func (c *comparison) restart() {
	t := c.c.t
	t.Helper()
	var took []time.Duration
	var transactions int
	c.starts.repeat(func(int) {
		c.stop()
		begin := c.start()
		eventually(t, c.synced)
		took = append(took, time.Since(begin))
		transactions += len(c.settle())
		c.verify()
	})
	c.record(results.Restart, results.Record{From: results.FromProcess, Seconds: results.Durations(took),
		Work: &results.Work{Transactions: float64(transactions) / float64(len(took))}})
}

// synced asks the metrics server whether there was a sync. All is done on one
// thread in the namespace: to enter it for each question would take longer than
// the answer.
func (c *comparison) synced() error {
	const metric = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `
	return c.c.Node.Do(func() error {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if v, err := readMetric("127.0.0.1:10249", metric); err == nil && v > 0 {
				return nil
			}
		}
		return fmt.Errorf("%s has not synced", c.name)
	})
}

// readMetric reads a metric in the namespace of the calling thread.
func readMetric(server, metric string) (float64, error) {
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), metric); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", metric)
}
