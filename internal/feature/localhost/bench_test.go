package localhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const nodePort, podPort = 30080, 8080

// service is a Service with that NodePort, and an endpoint on a pod.
func service(lab *netlab.Lab) (*model.Snapshot, model.Config) {
	var ips []netip.Addr
	snapshot := &model.Snapshot{Nodes: []*model.Node{{Name: "node", Addresses: []netip.Addr{lab.Node.IPv4, lab.Node.IPv6}}}}
	for _, f := range model.Families {
		ips = append(ips, map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("10.96.0.10"), model.IPv6: netip.MustParseAddr("fd00:10:96::10")}[f])
		snapshot.Slices = append(snapshot.Slices, &model.EndpointSlice{
			Namespace: "default", Name: f.String(), Service: "web", Family: f, Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: podPort}},
			Hosts: []model.Host{{Address: lab.Pods[0].Address(f), Ready: true, Serving: true}},
		})
	}
	snapshot.Services = []*model.Service{{
		Name: model.ServiceName{Namespace: "default", Name: "web"}, ClusterIPs: ips,
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: nodePort}},
	}}
	return snapshot, model.Config{
		NodeName: "node", NodePortPrimary: true, NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}
}

// serveBench loads the rules, and runs a server for them. Its pod answers each connection
// with serve. It returns what is measured: the endpoint itself, the NodePort on the address
// of the node, and that on localhost.
func serveBench(b *testing.B, answer func(net.Conn)) (*netlab.Lab, map[string]string, *process) {
	lab := netlab.TestLab(b, 1)
	snapshot, config := service(lab)
	routing := model.Resolve(snapshot, config)
	var rules bytes.Buffer
	if err := render.Render(routing).Text(&rules); err != nil {
		b.Fatal(err)
	}
	load := exec.Command("nft", "-f", "-")
	load.Stdin = &rules
	if out, err := nodeOutput(lab, load); err != nil {
		b.Fatalf("load rules: %v\n%s", err, out)
	}
	l, err := lab.Pods[0].Listen("tcp", fmt.Sprintf(":%d", podPort))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	p := startProcess(b, lab.Node, netip.AddrPortFrom(lab.Node.IPv4, nodePort))
	return lab, map[string]string{
		"endpoint": fmt.Sprintf("%s:%d", lab.Pods[0].IPv4, podPort), "node address": fmt.Sprintf("%s:%d", lab.Node.IPv4, nodePort),
		"localhost": fmt.Sprintf("127.0.0.1:%d", nodePort),
	}, p
}

// process is one that serves a NodePort on localhost of a node, so that its CPU time can be
// told from that of clients and endpoints.
type process struct{ cmd *exec.Cmd }

const targetVariable = "LOCALHOST_TARGET"

// startProcess starts this program again, on a node, to connect clients to a target.
func startProcess(b *testing.B, node *netlab.Host, target netip.AddrPort) *process {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), targetVariable+"="+target.String())
	in, err := cmd.StdinPipe()
	if err == nil {
		err = node.Start(cmd)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	netlab.Eventually(b, patience, func() error {
		c, err := node.DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", nodePort))
		if err == nil {
			c.Close()
		}
		return err
	})
	return &process{cmd}
}

// serveTarget is the main program of such a process. It ends with its input.
func serveTarget(target string) {
	to := netip.MustParseAddrPort(target)
	s := newServer(nodeOf(serving{to: to}, os.Stderr), nil, descriptors.Localhost(), tcpproxy.Kernel{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	s.Update([]model.RouteChange{{Frontend: at(model.IPv4, nodePort), New: route(model.IPv4, nodePort, 1)}})
	s.Run(ctx)
}

// serving is a node behind whose NodePorts is one target.
type serving struct {
	feature.Serving
	to netip.AddrPort
}

func (s serving) BehindLocalhost(model.Frontend) (netip.AddrPort, bool) { return s.to, true }

// times returns the CPU time of the process so far.
func (p *process) times(b *testing.B) (user, system time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	ticks := func(i int) time.Duration { // of 10 ms (USER_HZ)
		n, _ := strconv.Atoi(fields[i])
		return time.Duration(n) * 10 * time.Millisecond
	}
	return ticks(11), ticks(12)
}

// report reports the CPU time of the process since it was read, by unit.
func (p *process) report(b *testing.B, user, system time.Duration, units float64, unit string) {
	userNow, systemNow := p.times(b)
	b.ReportMetric(float64((userNow-user).Microseconds())/units, "user-µs/"+unit)
	b.ReportMetric(float64((systemNow-system).Microseconds())/units, "system-µs/"+unit)
}

func nodeOutput(lab *netlab.Lab, cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := lab.Node.Run(cmd)
	return out.String(), err
}

// BenchmarkConnections measures connections that ask once, from the node, by several
// clients at the same time.
func BenchmarkConnections(b *testing.B) {
	lab, targets, p := serveBench(b, func(c net.Conn) {
		defer c.Close()
		var question [1]byte
		if _, err := c.Read(question[:]); err == nil {
			_, _ = c.Write(question[:])
		}
	})
	for _, clients := range []int{1, 16} {
		for _, name := range []string{"endpoint", "node address", "localhost"} {
			b.Run(fmt.Sprintf("%s/%d clients", name, clients), func(b *testing.B) {
				user, system := p.times(b)
				start := time.Now()
				var all sync.WaitGroup
				for i := range clients {
					all.Go(func() {
						if err := lab.Node.Do(func() error { return ask(targets[name], (b.N+i)/clients) }); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "connections/s")
				p.report(b, user, system, float64(b.N), "connection")
			})
		}
	}
}

// ask makes connections one after the other. It resets them, so that they leave no port
// behind.
func ask(to string, times int) error {
	for range times {
		c, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		if _, err = c.Write([]byte("?")); err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		tcpproxy.Reset(c.(*net.TCPConn))
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkThroughput measures one connection from a pod to the node.
func BenchmarkThroughput(b *testing.B) {
	const size = 1 << 20
	zeros := make([]byte, size)
	lab, targets, p := serveBench(b, func(c net.Conn) {
		defer c.Close()
		for {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	})
	for _, name := range []string{"endpoint", "node address", "localhost"} {
		b.Run(name, func(b *testing.B) {
			c, err := lab.Node.DialContext(context.Background(), "tcp", targets[name])
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			buffer := make([]byte, size)
			b.SetBytes(size)
			b.ResetTimer()
			user, system := p.times(b)
			start := time.Now()
			for range b.N {
				if _, err := io.ReadFull(c, buffer); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*size*8/1e9/time.Since(start).Seconds(), "Gbit/s")
			p.report(b, user, system, float64(b.N)/1024, "GiB")
		})
	}
}

// BenchmarkListeners measures 10,000 NodePorts in both families, or as many as the limit of
// open files permits: the time until all are
// open, and the memory of the process.
func BenchmarkListeners(b *testing.B) {
	ports := min(10_000, descriptors.Localhost().Listeners*4/5)
	node := netlab.TestLab(b, 0).Node
	var changes []model.RouteChange
	for i := range uint16(ports) {
		for _, f := range model.Families {
			changes = append(changes, model.RouteChange{Frontend: at(f, 20000+i), New: route(f, 20000+i, 1)})
		}
	}
	memory := func() (heap, stacks uint64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.StackInuse
	}
	for b.Loop() {
		heap, stacks := memory()
		limits := descriptors.Localhost()
		limits.Listeners = 2 * ports
		s := newServer(nodeOf(nil, io.Discard), nil, limits, socketsOf{node})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		start := time.Now()
		s.Update(changes)
		netlab.Eventually(b, time.Minute, func() error {
			if c := s.Counts(); c.Listeners[model.IPv4]+c.Listeners[model.IPv6] != 2*ports {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		opened := time.Since(start)
		heapNow, stacksNow := memory()
		n := 2 * float64(ports)
		b.ReportMetric(n, "listeners")
		b.ReportMetric(float64(opened.Microseconds())/n, "µs/listener")
		b.ReportMetric(float64(heapNow-heap)/n, "heap-B/listener")
		b.ReportMetric(float64(stacksNow-stacks)/n, "stack-B/listener")
		cancel()
		<-done
	}
}
