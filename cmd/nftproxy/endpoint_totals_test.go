package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// balanced is a Balance whose file changes, and what its servers have answered.
type balanced struct {
	*drainLab
	path     string
	to       netip.AddrPort
	answered map[string]uint64 // by endpoint
}

// startAt runs nftproxy with the file.
func (b *balanced) startAt() *process {
	b.t.Helper()
	p := startCommand(b.t, b.Node.Namespace, asNftproxy(b.t, "run", "-f", b.path, "--drain-file", b.file, "--metrics-bind-address", "127.0.0.1:7011", "--endpoint-metrics"))
	eventually(b.t, "the first sync", func() bool { // before it listens, the kernel has the Service
		d := b.describe()
		return d.From == api.FromDaemon && len(d.Ports[0].Endpoints) > 0
	})
	return p
}

// save writes the Balance with servers of these weights, by the number of their pod.
func (b *balanced) save(weights map[int]int) {
	b.t.Helper()
	var servers []string
	for i, w := range weights {
		servers = append(servers, fmt.Sprintf("{address: %q, weight: %d}", b.endpoint(i), w))
	}
	text := fmt.Sprintf("kind: Balance\nname: web\nlisten: %s\nbackends: [%s]\n", b.to, strings.Join(servers, ", "))
	if err := os.WriteFile(b.path+"~", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.path+"~", b.path); err != nil {
		b.t.Fatal(err)
	}
}

// write writes the Balance, and waits until the rules follow.
func (b *balanced) write(weights map[int]int) {
	b.t.Helper()
	b.save(weights)
	eventually(b.t, "the new weights", func() bool {
		got := make(map[int]int)
		for _, e := range b.describe().Ports[0].Endpoints {
			for i := range b.Pods {
				if e.Address == b.endpoint(i) {
					got[i] = e.Weight
				}
			}
		}
		return maps.Equal(got, weights)
	})
}

func (b *balanced) endpoint(pod int) string {
	return netip.AddrPortFrom(b.Pods[pod].IPv4, 8080).String()
}

func (b *balanced) connect(n int) {
	b.t.Helper()
	for name, n := range b.answering(n, "tcp", b.to) {
		for i, p := range b.Pods {
			if p.Name == name {
				b.answered[b.endpoint(i)] += uint64(n)
			}
		}
	}
}

func (b *balanced) describe() (d api.Description) {
	b.t.Helper()
	if r := b.run("describe", "web", "-o", "json"); r.code == 0 {
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
			b.t.Fatal(err)
		}
	}
	if len(d.Ports) == 0 {
		d.Ports = []api.DescribedPort{{}}
	}
	return d
}

// expect compares the counts of describe, of /live and of the metrics with the answers of
// the servers. Only the metrics have servers that are gone.
func (b *balanced) expect(when string, servers int) {
	b.t.Helper()
	var all uint64
	for _, n := range b.answered {
		all += n
	}
	port := b.describe().Ports[0]
	for _, e := range port.Endpoints {
		if e.Connections == nil || *e.Connections != b.answered[e.Address] {
			b.t.Errorf("%s: describe has %v connections to %s, want %d", when, number(e.Connections), e.Address, b.answered[e.Address])
		}
	}
	if n := port.Frontends[0].Connections; n == nil || *n != all || len(port.Endpoints) != servers {
		b.t.Errorf("%s: describe has %v connections and %d servers, want %d and %d", when, number(n), len(port.Endpoints), all, servers)
	}
	_, text := get(b.t, b.Node.Namespace, "http://127.0.0.1:7011/metrics")
	got := make(map[string]uint64)
	for _, m := range regexp.MustCompile(`(?m)^nftproxy_endpoint_connections_total\{endpoint="([^"]*)",namespace="default",port="[^"]*",protocol="TCP",service="web"\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		if n, _ := strconv.ParseUint(m[2], 10, 64); n > 0 {
			got[m[1]] = n
		}
	}
	if !maps.Equal(got, b.answered) {
		b.t.Errorf("%s: the metrics have %v, want %v", when, got, b.answered)
	}
	if !strings.Contains(text, fmt.Sprintf("service=\"web\"} %d\n", all)) {
		b.t.Errorf("%s: the metrics have no total of %d", when, all)
	}
	eventually(b.t, when+": counts of /live", func() bool { return b.isLive() }) // it reads at most once a second
}

// isLive reports whether /live has what the servers have answered.
func (b *balanced) isLive() bool {
	b.t.Helper()
	var sample api.Sample
	_, text := get(b.t, b.Node.Namespace, "http://127.0.0.1:7011/live?service=default/web")
	if err := json.Unmarshal([]byte(text), &sample); err != nil || sample.Detail == nil {
		b.t.Fatalf("/live: %v, %s", err, text)
	}
	for _, e := range sample.Detail.Ports[0].EndpointList {
		if e.Connections == nil || *e.Connections != b.answered[e.Address] {
			return false
		}
	}
	return true
}

func number(n *uint64) string {
	if n == nil {
		return "no"
	}
	return strconv.FormatUint(*n, 10)
}

// 11.23: the counts of endpoints, and their sum, go on when servers are replaced or change
// their weight, which ends the counters of the kernel.
func TestEndpointTotals(t *testing.T) {
	b := &balanced{drainLab: newDrainLab(t), to: webAddresses[model.IPv4], answered: make(map[string]uint64)}
	b.path = filepath.Join(t.TempDir(), "web.yaml")
	b.save(map[int]int{0: 1, 1: 1, 2: 1})
	p := b.startAt()
	b.connect(30)
	b.expect("at first", 3)
	b.write(map[int]int{0: 1, 2: 1})
	b.connect(10)
	b.expect("after a server left", 2)
	b.write(map[int]int{0: 1, 1: 1, 2: 1})
	b.connect(9)
	b.expect("after it returned", 3)
	b.write(map[int]int{0: 3, 1: 1, 2: 1})
	b.connect(10)
	b.expect("with another weight", 3)
	b.succeeds("drain", b.Pods[2].IPv4.String())
	b.connect(8)
	b.expect("while one is drained", 3)
	b.succeeds("undrain", b.Pods[2].IPv4.String())
	b.connect(10)
	b.expect("after that", 3)

	// Another process has what the kernel has counted since the last change.
	b.stop(p)
	b.startAt()
	for _, e := range b.describe().Ports[0].Endpoints {
		if e.Connections == nil || *e.Connections > b.answered[e.Address] {
			t.Errorf("after a restart: %v connections to %s, of %d", number(e.Connections), e.Address, b.answered[e.Address])
		} else {
			b.answered[e.Address] = *e.Connections
		}
	}
	b.connect(10)
	for _, e := range b.describe().Ports[0].Endpoints {
		if *e.Connections != b.answered[e.Address] {
			t.Errorf("after a restart: %v connections to %s, want %d", number(e.Connections), e.Address, b.answered[e.Address])
		}
	}
}
