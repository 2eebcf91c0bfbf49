package web

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// node is a node with a daemon.
type node struct {
	*netlab.Lab
	file   string
	daemon *exec.Cmd
	log    netlab.LogBuffer
}

// demand is a Service and how many connections a second clients make to it.
type demand struct {
	name string
	rate int
	pods int
}

var demands = []demand{
	{"shop/web", 90, 4}, {"shop/api", 40, 3}, {"shop/cart", 15, 2}, {"shop/search", 6, 3}, {"shop/checkout", 3, 2},
	{"sre/prometheus", 2, 1}, {"sre/grafana", 1, 1}, {"kube-system/metrics-server", 1, 1}, {"shop/recommendations", 0, 0}, {"shop/reviews", 0, 1},
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Lab: netlab.TestLab(t, 4), file: filepath.Join(t.TempDir(), "services.yaml")}
	if err := n.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	n.write(t, 3)
	n.daemon = exec.Command(program, "run", "-f", filepath.Base(n.file), "--hostname-override=node-1", "--cluster-cidr=10.128.0.0/16", "--endpoint-metrics", "--web", "--observe=connections")
	n.daemon.Dir, n.daemon.Stderr = filepath.Dir(n.file), &n.log
	if err := n.Node.Start(n.daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.end()
		if t.Failed() {
			fmt.Fprintf(t.Output(), "log of the daemon:\n%s\n", n.log.String())
		}
	})
	netlab.Eventually(t, patience, func() error {
		_, err := n.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.10:80"), time.Second)
		return err
	})
	return n
}

// end ends the daemon.
func (n *node) end() {
	if n.daemon.ProcessState == nil {
		_ = n.daemon.Process.Kill()
		_ = n.daemon.Wait() // the error is the signal
	}
}

// write writes the objects; shop/search has that many endpoints.
func (n *node) write(t *testing.T, search int) {
	t.Helper()
	var b strings.Builder
	for i, d := range demands {
		namespace, name, _ := strings.Cut(d.name, "/")
		annotations := ""
		if name == "search" {
			annotations = ", annotations: {nftproxy.dev/slow-start: 1h}"
		}
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s%s}\nspec: {clusterIP: 10.96.0.%d, ports: [{name: http, port: 80}]}\n---\n", name, namespace, annotations, 10+i)
		pods, port := d.pods, 8080
		switch name {
		case "search":
			pods = search
		case "reviews":
			port = 8081 // where nothing listens
		}
		fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, namespace: %s, labels: {kubernetes.io/service-name: %[1]s}}\naddressType: IPv4\nports: [{name: http, port: %[3]d}]\nendpoints:", name, namespace, port)
		for p := range pods {
			fmt.Fprintf(&b, "\n- {addresses: [%s], nodeName: node-1}", n.Pods[p].IPv4)
		}
		if pods == 0 {
			b.WriteString(" []")
		}
		b.WriteString("\n---\n")
	}
	b.WriteString("apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n")
	next := n.file + ".new"
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, n.file); err != nil {
		t.Fatal(err)
	}
}

// change removes an endpoint of shop/search.
func (n *node) change(t *testing.T) {
	t.Helper()
	n.write(t, 2)
}

// start adds an endpoint to shop/search, which starts slowly.
func (n *node) start(t *testing.T) {
	t.Helper()
	n.write(t, 3)
}

// fail has a client dial what refuses it: a port without a Service, one that another rule drops, and a server that
// does not run.
func (n *node) fail(t *testing.T) {
	t.Helper()
	for _, to := range []string{"10.96.0.10:81", "10.96.0.10:82", "10.96.0.19:80"} {
		if _, err := n.Client.Ask("tcp", netip.MustParseAddrPort(to), 20*time.Millisecond); err == nil {
			t.Errorf("%s answers", to)
		}
	}
}

// failing has clients refused until stop is called.
func (n *node) failing(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for range await.Ticks(ctx.Done(), 100*time.Millisecond) {
			n.fail(t)
		}
	})
	return func() { cancel(); all.Wait() }
}

// load makes connections until the test ends.
func (n *node) load(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i, d := range demands {
		if d.rate == 0 {
			continue
		}
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(10 + i)}), 80)
		all.Go(func() {
			for begin := time.Now(); ; {
				// It rises and falls, each Service in its own time.
				rate := float64(d.rate) * (1 + 0.4*math.Sin(time.Since(begin).Seconds()/float64(4+i)+float64(i)))
				if !await.Pace(ctx.Done(), time.Duration(float64(time.Second)/rate)) {
					return
				}
				if _, err := n.Client.Ask("tcp", to, time.Second); err != nil {
					t.Errorf("%s: %v", d.name, err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
}

// program is nftproxy, built for these tests unless the environment names one.
var program = os.Getenv("NFTPROXY")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "nftproxy-web-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "nftproxy")
	build := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/nftproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build nftproxy: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
