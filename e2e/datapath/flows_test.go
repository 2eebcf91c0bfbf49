package datapath

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/bench/flow"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	// flowRounds is how often everything is measured, each time in another order.
	flowRounds = 15
	// flowsEach is how many flows are opened for one figure.
	flowsEach = 1000
)

// kind is a way to reach the server: a Service beside the others, or the server itself.
type kind struct {
	name     string
	protocol model.Protocol
	// set changes a Service; nil: it is one of the others.
	set func(*corev1.Service)
	own bool // only nftproxy has it
}

// kinds are in the order of their Services, which follow the others.
var kinds = []kind{
	{"TCP", model.TCP, nil, false},
	{"UDP", model.UDP, func(*corev1.Service) {}, false},
	{"session affinity", model.TCP, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }, false},
	{"limits", model.TCP, func(s *corev1.Service) {
		s.Annotations = map[string]string{
			"nftproxy.dev/max-connections": "60000", "nftproxy.dev/max-connections-per-client": "60000",
			"nftproxy.dev/connection-rate": "1000000/second", "nftproxy.dev/connection-rate-per-client": "1000000/second",
		}
	}, true},
}

// flowPath is a laboratory with the servers of all kinds on its last pod.
type flowPath struct {
	*dataPath
	counted bool // nftproxy counts the connections to each Service and endpoint
	servers map[model.Protocol]*flow.Servers
	costs   map[string][]float64 // seconds of each round, by kind
}

// BenchmarkFlows measures the processor time of a new flow, of all packets on their whole
// way: over TCP and UDP, with session affinity, limits and counters, for numbers of Services
// that FLOW_SERVICES has (1,1000,30000). RESULTS is a file that the results are written to.
func BenchmarkFlows(b *testing.B) {
	paths := []*flowPath{newFlowPath(b, withoutRules(b)), newFlowPath(b, withTracking(b))}
	for _, n := range flowSizes(b) {
		paths = append(paths, flowsThrough(b, n, false), flowsThrough(b, n, true), flowsThroughKubeProxy(b, n))
	}
	for b.Loop() {
		for round := range flowRounds {
			for _, i := range rand.New(rand.NewPCG(0, uint64(round))).Perm(len(paths)) {
				paths[i].round(b)
			}
		}
	}
	writeFlows(b, paths)
}

func flowSizes(b *testing.B) (sizes []int) {
	b.Helper()
	text := os.Getenv("FLOW_SERVICES")
	if text == "" {
		return []int{1, 1000, 30_000}
	}
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > testbed.MaxLoad-len(kinds) {
			b.Fatalf("FLOW_SERVICES is %q: use numbers from 1, separated by commas", text)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// newFlowPath takes the server of a path away, and starts the servers of all kinds.
func newFlowPath(b *testing.B, p *dataPath) *flowPath {
	b.Helper()
	f := &flowPath{dataPath: p, servers: map[model.Protocol]*flow.Servers{}, costs: map[string][]float64{}}
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		s, err := flow.Listen(protocol, []*netlab.Host{p.server()}, model.IPv4, flowPort)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		f.servers[protocol] = s
	}
	if err := flow.AllPorts(p.clients()[0]); err != nil {
		b.Fatal(err)
	}
	return f
}

// flowPort is the port of the servers; another one has a server that echoes.
const flowPort = testbed.EchoPort + 1

// ofKinds returns Services, and one of each kind beside them.
func ofKinds(endpoint netip.Addr, services int) objects {
	o := withEndpoint(endpoint, services)
	for _, k := range kinds {
		service, slice := o.add(endpoint)
		if k.set != nil {
			k.set(service)
		}
		if k.protocol == model.UDP {
			service.Spec.Ports[0].Protocol, slice.Ports[0].Protocol = corev1.ProtocolUDP, new(corev1.ProtocolUDP)
		}
		service.Spec.Ports[0].TargetPort.IntVal, slice.Ports[0].Port = flowPort, new(int32(flowPort))
	}
	return o
}

// flowsThrough is a path through nftproxy.
func flowsThrough(b *testing.B, services int, counted bool) *flowPath {
	b.Helper()
	p := newDataPath(b, results.Nftproxy, services, testbed.NewLab(b, dataPathClients+1))
	file := filepath.Join(b.TempDir(), "services.json")
	ofKinds(p.to.Addr(), services).write(b, file)
	args := []string{"apply", "-f", file, "--hostname-override", testbed.NodeName, "--cluster-cidr", testbed.ClusterCIDRs}
	if counted {
		args = append(args, "--endpoint-metrics")
	}
	p.run(b, exec.Command(testbed.NFTProxy.Path, args...))
	p.to = testbed.LoadTarget(services / 2)
	p.awaitServed(b)
	f := newFlowPath(b, p)
	f.counted = counted
	return f
}

// flowsThroughKubeProxy is a path through the rules of kube-proxy.
func flowsThroughKubeProxy(b *testing.B, services int) *flowPath {
	b.Helper()
	return newFlowPath(b, throughKubeProxy(b, services, ofKinds))
}

// round opens flows of all kinds.
func (f *flowPath) round(b *testing.B) {
	b.Helper()
	for i, k := range kinds {
		if f.services == 0 && k.set != nil && k.protocol == model.TCP || k.own && f.program != results.Nftproxy {
			continue
		}
		to := netip.AddrPortFrom(f.server().IPv4, flowPort)
		if f.services > 0 {
			to = testbed.LoadTarget(f.services + i)
		}
		servers := f.servers[k.protocol]
		// The caches of the processor are those of another path.
		if _, err := servers.Open(f.clients()[0], to, flowsEach/10); err != nil {
			b.Fatalf("%s with %d services, %s: %v", f.program, f.services, k.name, err)
		}
		cost, err := servers.Open(f.clients()[0], to, flowsEach)
		if err != nil {
			b.Fatalf("%s with %d services, %s: %v", f.program, f.services, k.name, err)
		}
		f.costs[k.name] = append(f.costs[k.name], cost.Processor.Seconds())
	}
	f.checkTracking(b)
}

// writeFlows prints medians, and writes the figures to the file that RESULTS names. Ratios
// are those to the path without rules, in the same round.
func writeFlows(b *testing.B, paths []*flowPath) {
	b.Helper()
	r := testbed.NewReport(b)
	for _, f := range paths {
		for _, k := range kinds {
			costs := f.costs[k.name]
			if len(costs) == 0 {
				continue
			}
			base := paths[0].costs["TCP"]
			if k.protocol == model.UDP {
				base = paths[0].costs["UDP"]
			}
			record := results.Record{
				Program: f.program, Scenario: k.name, Services: f.services, Endpoints: min(f.services, 1), Operation: results.NewFlow, Counted: f.counted,
				Cost:   results.Values(costs),
				Ratios: map[results.Operation]*results.Distribution{results.Operation(results.NoRules): results.Values(ratios(costs, base))},
			}
			fmt.Printf("%-20s counted %-5v %6d services, %-16s %6.2f µs, %.3f times\n", f.program, f.counted, f.services, k.name,
				record.Cost.P50*1e6, record.Ratios[results.Operation(results.NoRules)].P50)
			r.File.Records = append(r.File.Records, record)
		}
	}
	r.Write(b)
}
