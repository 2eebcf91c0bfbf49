package parity

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// proxy is one of the programs, in the same setting.
type proxy struct {
	program *testbed.Program
	verb    []string
	more    string // configuration
}

var (
	kubeProxy = &proxy{program: &testbed.KubeProxy, more: "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}\n"}
	nftproxy  = &proxy{program: &testbed.NFTProxy, verb: []string{"run"}}
)

// observation is what a program does on a node.
type observation struct {
	series map[string]string // metrics: the type and the labels by name
	flows  []flow
}

// observe runs a program in a cluster of its own.
func observe(t *testing.T, p *proxy) (o observation) {
	c := newCluster(t)
	config := filepath.Join(c.Dir, "config")
	text := header + `mode: nftables
clientConnection: {kubeconfig: ` + c.Kubeconfig(testbed.ProxyUser) + `}
hostnameOverride: ` + testbed.NodeName + `
clusterCIDR: "` + testbed.ClusterCIDRs + `"
nodePortAddresses: [primary, localhost]
conntrack: {maxPerCore: 0}
` + p.more
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	testbed.Start(t, c.Node, *p.program, append(slices.Clone(p.verb), "--config", config)...)
	o.flows = c.flows()
	o.series = c.metrics()
	return o
}

// waitedFor are metrics that a program has only after it has done some work.
var waitedFor = []string{
	"kubeproxy_network_programming_duration_seconds", "kubeproxy_conntrack_reconciler_sync_duration_seconds",
	"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "kubeproxy_sync_partial_proxy_rules_duration_seconds",
}

// metrics reads the metrics of the node's proxy until it has done all kinds of work.
func (c *cluster) metrics() (series map[string]string) {
	c.T.Helper()
	testbed.Eventually(c.T, func() error {
		body, err := c.get("/metrics")
		if err != nil {
			return err
		}
		series = parse(body)
		for _, name := range waitedFor {
			if series[name] == "" {
				c.touch() // a change of endpoints, for the proxy that waits for one
				return fmt.Errorf("no metric %s", name)
			}
		}
		return nil
	})
	return series
}

func (c *cluster) get(path string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Node.DialContext(ctx, network, address)
		}}}
	r, err := client.Get("http://" + testbed.MetricsServer + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

var label = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)

// parse returns the types and labels of metrics in the text format.
func parse(body string) map[string]string {
	kinds, labels := map[string]string{}, map[string]map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader([]byte(body))); lines.Scan(); {
		line := lines.Text()
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			kinds[words[2]], labels[words[2]] = words[3], map[string]bool{}
			continue
		}
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			if all := labels[strings.TrimSuffix(name, suffix)]; all != nil {
				for _, m := range label.FindAllStringSubmatch(line, -1) {
					all[m[1]] = true
				}
				break
			}
		}
	}
	out := map[string]string{}
	for name, kind := range kinds {
		delete(labels[name], "le")
		out[name] = strings.TrimSpace(kind + " " + strings.Join(slices.Sorted(maps.Keys(labels[name])), ", "))
	}
	return out
}

// metrics compares the metrics of both, but for those that only nftproxy has under names of
// its own.
func metrics(k, n observation) *table {
	x := &table{title: "Metrics", anchor: "metrics", column: "metric",
		about: "The type and the labels of each metric of a node with Services of all kinds. [metrics.md](metrics.md) has those that only nftproxy has."}
	all := maps.Clone(n.series)
	maps.Copy(all, k.series)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		// Those of Go depend on its version alone.
		if strings.HasPrefix(name, "nftproxy_") || strings.HasPrefix(name, "go_") && k.series[name] == n.series[name] {
			continue
		}
		value := func(o observation) string {
			if v, has := o.series[name]; has {
				return v
			}
			return absent
		}
		x.add(name, value(k), value(n))
	}
	return x
}
