package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// BenchmarkObserved measures what it costs to observe the connections of all Services: of a whole
// connection, also while the daemon that reads what the rules log is stopped, and of the daemon.
// Nodes take turns, and each ratio is the median of those to the node that observes nothing.
//
// One thread has both ends of a connection. The kernel handles the packets in the calls that send
// them, so that the processor time of the thread is all that a connection costs.
func BenchmarkObserved(b *testing.B) {
	const rounds, connections = 240, 50
	off, on, stopped := newObservedNode(b, "off"), newObservedNode(b, "connections"), newObservedNode(b, "connections")
	stopped.must(stopped.daemon.Process.Signal(unix.SIGSTOP))
	for _, family := range model.Families {
		b.Run(family.String(), func(b *testing.B) {
			on.settled()
			before, opened := on.processorTime(), on.opened
			var costs []float64
			ratios := make(map[*observedNode][]float64)
			for b.Loop() {
				for range rounds {
					cost := off.open(family, connections)
					costs = append(costs, float64(cost.Nanoseconds())/connections)
					for _, n := range []*observedNode{on, stopped} {
						ratios[n] = append(ratios[n], float64(n.open(family, connections))/float64(cost))
					}
				}
			}
			on.settled()
			median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
			b.ReportMetric(float64((on.processorTime()-before).Nanoseconds())/float64(on.opened-opened), "daemon-ns/connection")
			b.ReportMetric(median(costs), "ns/off")
			b.ReportMetric(median(ratios[on]), "ratio")
			b.ReportMetric(median(ratios[stopped]), "ratio-stopped")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// observedNode is a node with a Service, whose server ends each connection, and a daemon.
type observedNode struct {
	*netlab.Lab
	b         *testing.B
	web       service
	daemon    *exec.Cmd
	listening map[model.Family]int // descriptors
	opened    int
}

func newObservedNode(b *testing.B, level string) *observedNode {
	lab := netlab.TestLab(b, 1)
	n := &observedNode{Lab: lab, b: b, web: service{Name: "web", N: 1, Pods: lab.Pods}, listening: make(map[model.Family]int)}
	file := filepath.Join(b.TempDir(), "services.yaml")
	n.must(os.WriteFile(file, []byte(renderInput(b, lab.Node, []service{n.web})), 0o644))
	n.daemon = exec.Command(binary, slices.Concat([]string{"run", "-f", file, "--hostname-override", nodeName, "--observe=" + level}, clusterCIDR)...)
	n.must(lab.Node.Start(n.daemon))
	b.Cleanup(func() { _ = n.daemon.Process.Kill(); _ = n.daemon.Wait() })
	for _, f := range model.Families {
		fd, address := newSocket(b, lab.Pods[0], f, unix.SOCK_STREAM), socketAddress(netip.AddrPortFrom(lab.Pods[0].Address(f), echoPort))
		n.must(errors.Join(unix.Bind(fd, address), unix.Listen(fd, 16)))
		n.listening[f] = fd
	}
	netlab.Eventually(b, 4*patience, func() error {
		for _, f := range model.Families {
			c, err := lab.Client.DialContext(b.Context(), "tcp", n.web.clusterIP(f).String())
			if err != nil {
				return err
			}
			fd, _, err := unix.Accept(n.listening[f])
			n.must(errors.Join(err, unix.Close(fd), c.Close()))
			n.opened++
		}
		return nil
	})
	return n
}

func (n *observedNode) must(err error) {
	n.b.Helper()
	if err != nil {
		n.b.Fatal(err)
	}
}

// newSocket returns the descriptor of a socket of a host. It is closed with the process.
func newSocket(b *testing.B, h *netlab.Host, f model.Family, kind int) (fd int) {
	b.Helper()
	domain := map[model.Family]int{model.IPv4: unix.AF_INET, model.IPv6: unix.AF_INET6}[f]
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return fd
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// open opens and ends connections, and returns the processor time of that, without the one of making
// sockets, for which the thread has to be in the namespace of the client.
func (n *observedNode) open(f model.Family, connections int) (all time.Duration) {
	sockets := make([]int, connections)
	for i := range sockets {
		sockets[i] = newSocket(n.b, n.Client, f, unix.SOCK_STREAM)
	}
	to := socketAddress(n.web.clusterIP(f))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := usedTime(n.b)
	for _, client := range sockets {
		err := unix.Connect(client, to)
		server, _, failed := unix.Accept(n.listening[f])
		n.must(errors.Join(err, failed, unix.Close(server), unix.Close(client))) // the port of the client is free again
	}
	n.opened += connections
	return usedTime(n.b) - start
}

// usedTime returns the processor time of the calling thread.
func usedTime(b *testing.B) time.Duration {
	b.Helper()
	t, err := threadTime()
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// settled waits until the daemon has all connections.
func (n *observedNode) settled() {
	n.b.Helper()
	netlab.Eventually(n.b, patience, func() error {
		a, err := get(n.Node, "GET", metricsAddress, "/observe?limit=0&top=0", "")
		if err != nil {
			return err
		}
		var o api.Observed
		if err := json.Unmarshal([]byte(a.body), &o); err != nil {
			return err
		}
		if int(o.Total) < n.opened || o.Lost > 0 || o.Skipped > 0 {
			return fmt.Errorf("%d of %d connections, %d lost, %d skipped", o.Total, n.opened, o.Lost, o.Skipped)
		}
		return nil
	})
}

// processorTime returns the time that the daemon has used.
func (n *observedNode) processorTime() time.Duration {
	n.b.Helper()
	used, err := results.ProcessorTime(n.daemon.Process.Pid)
	n.must(err)
	return used
}
