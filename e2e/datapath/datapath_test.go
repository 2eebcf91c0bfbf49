package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// dataPathRounds is how often everything is measured. The variants take turns,
// so that other load on the machine affects all of them.
const dataPathRounds = 7

// trackedOnly is a node with connection tracking and nat chains, which address
// translation needs, but without any translation.
const trackedOnly results.Program = "connection tracking"

// dataPath is a laboratory with rules of some kind on its node. Its first pods
// are clients; the last one is the server.
type dataPath struct {
	program  results.Program
	services int
	lab      *netlab.Lab
	to       netip.AddrPort // what the clients dial

	connections []float64 // a second, one figure for each round
	trips       []float64 // a second, one figure for each round
	latencies   []time.Duration
}

// BenchmarkDataPath measures what rules cost the packets: how many connections
// a second several clients on pods make to a server on another pod, and how
// often a second one connection takes a byte there and another one back. The
// environment variable DATAPATH_SERVICES is the number of Services in the
// larger variants (30000), and RESULTS a file that the results are written to.
func BenchmarkDataPath(b *testing.B) {
	many := manyServices(b)
	paths := []*dataPath{
		withoutRules(b), withTracking(b), withOneRule(b),
		withNftproxy(b, 1), withNftproxy(b, many), withKubeProxy(b, 1), withKubeProxy(b, many),
	}
	for b.Loop() {
		for range dataPathRounds {
			for _, p := range paths {
				p.measure(b)
			}
		}
	}
	fmt.Println(dataPathTable(paths))
	writeDataPaths(b, paths)
}

func manyServices(b *testing.B) int {
	b.Helper()
	text := os.Getenv("DATAPATH_SERVICES")
	if text == "" {
		return 30_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > testbed.MaxLoad {
		b.Fatalf("DATAPATH_SERVICES is %q: set a number from 1 to %d", text, testbed.MaxLoad)
	}
	return n
}

// newDataPath starts the server. By default clients dial the server itself.
func newDataPath(b *testing.B, program results.Program, services int, lab *netlab.Lab) *dataPath {
	b.Helper()
	p := &dataPath{program: program, services: services, lab: lab}
	startPong(b, p.server())
	p.to = netip.AddrPortFrom(p.server().IPv4, testbed.EchoPort)
	return p
}

func (p *dataPath) clients() []*netlab.Host { return p.lab.Pods[:dataPathClients] }
func (p *dataPath) server() *netlab.Host    { return p.lab.Pods[dataPathClients] }

func withoutRules(b *testing.B) *dataPath {
	b.Helper()
	return newDataPath(b, results.NoRules, 0, testbed.NewLab(b, dataPathClients+1))
}

func withTracking(b *testing.B) *dataPath {
	b.Helper()
	p := newDataPath(b, trackedOnly, 0, testbed.NewLab(b, dataPathClients+1))
	p.load(b, "ct state new") // turns tracking on, and does nothing
	return p
}

func withOneRule(b *testing.B) *dataPath {
	b.Helper()
	p := newDataPath(b, results.OneRule, 1, testbed.NewLab(b, dataPathClients+1))
	frontend := testbed.LoadTarget(0)
	p.load(b, fmt.Sprintf("ip daddr %s tcp dport %d dnat to %s", frontend.Addr(), frontend.Port(), p.to))
	p.to = frontend
	return p
}

// load loads rules written by hand, one of which may be for packets that come
// from pods.
func (p *dataPath) load(b *testing.B, rule string) {
	b.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table ip nat {
		chain prerouting { type nat hook prerouting priority dstnat; %s; }
		chain postrouting { type nat hook postrouting priority srcnat; }
	}`, rule))
	p.run(b, cmd)
}

// run runs a command on the node.
func (p *dataPath) run(b *testing.B, cmd *exec.Cmd) {
	b.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.lab.Node.Run(cmd); err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, &out)
	}
}

func withNftproxy(b *testing.B, services int) *dataPath {
	b.Helper()
	p := newDataPath(b, results.Nftproxy, services, testbed.NewLab(b, dataPathClients+1))
	file := filepath.Join(b.TempDir(), "services.json")
	withEndpoint(p.to.Addr(), services).write(b, file)
	p.run(b, exec.Command(testbed.NFTProxy.Path, "apply", "-f", file, "--hostname-override", testbed.NodeName, "--cluster-cidr", testbed.ClusterCIDRs))
	p.to = testbed.LoadTarget(services / 2)
	p.awaitServed(b)
	return p
}

// withKubeProxy leaves kube-proxy's rules in place, but stops kube-proxy and
// the API server, which would take processor time from the clients.
func withKubeProxy(b *testing.B, services int) *dataPath {
	b.Helper()
	return throughKubeProxy(b, services, withEndpoint)
}

func throughKubeProxy(b *testing.B, services int, make func(endpoint netip.Addr, services int) objects) *dataPath {
	b.Helper()
	// All Services of a namespace wait in one queue for its quotas.
	c := testbed.NewCluster(b, dataPathClients+1, "--disable-admission-plugins", "ResourceQuota")
	c.StopEcho(c.Pods[dataPathClients])
	p := newDataPath(b, results.KubeProxy, services, c.Lab)
	make(p.to.Addr(), services).create(b, c)
	proxy := testbed.Start(b, c.Node, testbed.KubeProxy, "--proxy-mode", "nftables", "--kubeconfig", c.Kubeconfig(testbed.ProxyUser),
		"--hostname-override", testbed.NodeName, "--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
	p.to = testbed.LoadTarget(services / 2)
	p.awaitServed(b)
	awaitRest(b, proxy)
	proxy.Kill()
	c.Server.Kill()
	return p
}

// awaitRest waits until a proxy is idle: a sync may continue after its rules
// are there, or be followed by another one.
func awaitRest(b *testing.B, p *testbed.Process) {
	b.Helper()
	testbed.Eventually(b, func() error {
		used := p.CPU(b)
		if await.Span(testbed.Calm); p.Busy(b, used) {
			return errors.New("the proxy is busy")
		}
		return nil
	})
}

// awaitServed waits until a client outside is served: the first transaction of
// a proxy has all Services. The measured clients do not dial before that:
// connection tracking would remember for two minutes that their connections are
// not translated, and take a connection from the same port for the same one.
func (p *dataPath) awaitServed(b *testing.B) {
	b.Helper()
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(b.Context(), testbed.Silence)
		c, err := p.lab.Client.DialContext(ctx, "tcp", p.to.String())
		cancel()
		if err == nil {
			c.Close()
			b.Logf("%s with %d services serves after %v", p.program, p.services, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > testbed.Endless {
			b.Fatalf("%s with %d services does not serve: %v", p.program, p.services, err)
		}
	}
}

// measure measures one round.
func (p *dataPath) measure(b *testing.B) {
	b.Helper()
	perSecond, err := connections(p.clients(), p.to)
	if err != nil {
		b.Fatalf("%s: %v", p.program, err)
	}
	p.checkTracking(b)
	latencies, err := roundTrips(p.clients()[0], p.to)
	if err != nil {
		b.Fatalf("%s: %v", p.program, err)
	}
	p.connections = append(p.connections, perSecond)
	p.trips = append(p.trips, float64(len(latencies))/measured.Seconds())
	p.latencies = append(p.latencies, latencies...)
}

// checkTracking checks that connections are tracked where they should be, and
// that there is room for more: looking for some costs time.
func (p *dataPath) checkTracking(b *testing.B) {
	b.Helper()
	var count, limit int
	err := p.lab.Node.Do(func() error {
		for name, into := range map[string]*int{"nf_conntrack_count": &count, "nf_conntrack_max": &limit} {
			text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
			if err != nil {
				return err
			}
			if *into, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	if tracked := p.program != results.NoRules; tracked != (count > 0) {
		b.Fatalf("%s: %d connections are tracked", p.program, count)
	}
	if count > limit/2 {
		b.Fatalf("%s: %d connections are tracked, at most %d can be: raise net.netfilter.nf_conntrack_max", p.program, count, limit)
	}
}
