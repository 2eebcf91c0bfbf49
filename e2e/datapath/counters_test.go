package datapath

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// countedServices is how many Services a node of BenchmarkCounters has.
const countedServices = 10_000

// BenchmarkCounters measures what counters cost new connections: without them, with
// those of Services, and with those of endpoints as well.
func BenchmarkCounters(b *testing.B) {
	var paths []*dataPath
	flags := []string{"", "--service-metrics", "--endpoint-metrics"}
	for _, f := range flags {
		paths = append(paths, withDaemon(b, f))
	}
	for b.Loop() {
		for range dataPathRounds {
			for _, p := range paths {
				p.measure(b)
			}
		}
	}
	for i, f := range flags {
		slices.Sort(paths[i].connections)
		slices.Sort(paths[i].trips)
		fmt.Printf("%-20s %6.0f connections/s (%.0f to %.0f), %6.0f round trips/s\n", f, median(paths[i].connections),
			paths[i].connections[0], paths[i].connections[len(paths[i].connections)-1], median(paths[i].trips))
	}
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// withDaemon leaves the rules of a daemon with a flag in place, but ends the daemon.
func withDaemon(b *testing.B, flag string) *dataPath {
	b.Helper()
	p := newDataPath(b, results.Nftproxy, countedServices, testbed.NewLab(b, dataPathClients+1))
	file := filepath.Join(b.TempDir(), "services.json")
	withEndpoint(p.to.Addr(), countedServices).write(b, file)
	args := []string{"run", "-f", file, "--hostname-override", testbed.NodeName, "--cluster-cidr", testbed.ClusterCIDRs, "--metrics-bind-address="}
	if flag != "" {
		args = append(args, flag)
	}
	daemon := testbed.StartCommand(b, p.lab.Node, "nftproxy", exec.Command(testbed.NFTProxy.Path, args...))
	p.to = testbed.LoadTarget(countedServices / 2)
	p.awaitServed(b)
	daemon.Signal(b, syscall.SIGTERM)
	_ = daemon.Cmd.Wait() // its rules stay
	return p
}
