package probe

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// TestServe is no test: the benchmark runs it as a process of its own, which accepts and
// closes connections to any address, so that its CPU time is not that of the checks.
func TestServe(t *testing.T) {
	if os.Getenv("SERVE") == "" {
		return
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("port %d\n", l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func serve(b *testing.B) (port uint16) {
	b.Helper()
	server := exec.Command(os.Args[0], "-test.run=^TestServe$")
	server.Env = append(os.Environ(), "SERVE=1")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(line), "port "), 10, 16)
	if err != nil {
		b.Fatal(err)
	}
	return uint16(n)
}

// BenchmarkChecks makes checks of many endpoints over the loopback interface, each every
// two seconds: the CPU time that they take, and the memory that the engine holds.
func BenchmarkChecks(b *testing.B) {
	const time10 = 10 * time.Second
	port := serve(b)
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := serviceOf("web", tcp)
			hosts := make([]model.Host, n)
			for i := range hosts {
				hosts[i] = model.Host{Address: netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), Ready: true}
			}
			s.Slices = []*model.EndpointSlice{{Family: model.IPv4, Hosts: hosts, Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: port}}}}
			before := heapSize()
			node := &feature.Node{Config: new(config.Config)}
			e := newEngine(node, machine{node}, slog.New(slog.DiscardHandler))
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				e.Run(ctx, func(...model.ServiceName) {})
			}()
			for b.Loop() {
				e.Edit(s.Service.Name, s)
				begin := time.Now()
				if err := e.Await(ctx); err != nil {
					b.Fatal(err)
				}
				first := time.Since(begin)
				await.Span(3 * time.Second) // until the checks are spread
				cpu := cpuTime()
				await.Span(time10)
				b.ReportMetric(100*float64(cpuTime()-cpu)/float64(time10), "%CPU")
				b.ReportMetric(float64(heapSize()-before)/float64(n), "B-held/endpoint")
				b.ReportMetric(float64(e.Counts().Failing), "failing")
				b.ReportMetric(first.Seconds(), "s-to-first-results")
			}
			stop()
			<-ended
		})
	}
}

// BenchmarkEdit is the cost of one endpoint that fails among many of its Service.
func BenchmarkEdit(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			e := newEngine(new(feature.Node), nil, slog.New(slog.DiscardHandler))
			s := serviceOf("web", tcp, addresses(n)...)
			e.Edit(s.Service.Name, s)
			e.mu.Lock()
			e.set(e.services[s.Service.Name].members[n/2].target, false, time.Now())
			e.mu.Unlock()
			for b.Loop() {
				e.Edit(s.Service.Name, s)
			}
		})
	}
}

func heapSize() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
