package compare

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	podServices  = 300 // with a NodePort each, on all addresses
	podEndpoints = 2   // of each family
	podStarts    = 120
	podPace      = 200 * time.Millisecond // from the start of a pod to that of the next
	podsAlive    = 20                     // at the same time
	// podTime is how long the pods come and go.
	podTime = (podStarts + podsAlive) * podPace
)

// BenchmarkPods measures what pod churn costs a proxy that serves NodePorts on
// all addresses of the node: each pod comes and goes with an interface that has
// addresses. RESULTS names a file to write the processor time to.
func BenchmarkPods(b *testing.B) {
	r := testbed.NewReport(b)
	c := newPodComparison(b, r)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nproxy\thost ends have\tprocessor, idle\twith pods\tsyncs\tfull syncs\ttransactions\trules\twith pods\tafter\telements\twith pods\tafter\t")
	for _, p := range []contender{{name: results.KubeProxy, program: testbed.KubeProxy}, {name: results.Nftproxy, program: testbed.NFTProxy}} {
		p.config = `nodePortAddresses: ["0.0.0.0/0", "::/0"]` + "\n"
		c.contender = p
		c.start()
		c.awaitNodePorts()
		idle := c.idleCPU()
		for _, addresses := range podAddresses(c.C) {
			c.measurePods(addresses).print(w, p.name, addresses.name, idle)
		}
		c.stop()
		c.flush()
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	r.Write(b)
}

// podComparison is a comparison with NodePorts.
type podComparison struct {
	*comparison
	pods *netlab.Namespace // that the interfaces of all pods are in
	last testbed.Service   // created last
}

// hostAddresses are those of the node's end of a pod's link, with the IPv6 link-local
// address that the kernel adds.
type hostAddresses struct {
	name string
	all  []netip.Addr
}

// podAddresses returns what plugins give the node's end: nothing, the address that is
// the gateway of all pods, as ptp does, or an IPv4 link-local one.
func podAddresses(c *testbed.Cluster) []hostAddresses {
	return []hostAddresses{
		{"fe80::", nil},
		{"fe80::, 169.254.1.1", []netip.Addr{netip.MustParseAddr("169.254.1.1")}},
		{"fe80::, gateway", []netip.Addr{c.Gateway(c.Pods[0], model.IPv4), c.Gateway(c.Pods[0], model.IPv6)}},
	}
}

func newPodComparison(b *testing.B, r *testbed.ComparisonReport) *podComparison {
	b.Helper()
	c := testbed.NewCluster(b, podEndpoints, testbed.WithoutOwnEndpoint)
	home, err := os.MkdirTemp("/run", "nftproxy-compare-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(home) })
	p := &podComparison{pods: netlab.TestNamespace(b), comparison: &comparison{
		Population: &testbed.Population{C: c, Services: podServices}, home: home, kernel: testbed.WatchKernel(b, c.Node.Do, testbed.PodNetwork), report: r}}
	for i := range podServices {
		s := testbed.WithNodePorts(testbed.DualStack(testbed.LoadName(i)))
		s.Spec.Ports = s.Spec.Ports[:1]
		p.last = c.CreateService(s)
		c.SetEndpoints(p.last, c.Pods...)
	}
	return p
}

// awaitNodePorts waits until the proxy serves and is idle.
func (c *podComparison) awaitNodePorts() {
	c.C.T.Helper()
	testbed.Eventually(c.C.T, func() error {
		_, err := c.C.Client.Ask("tcp", netip.AddrPortFrom(c.C.Node.IPv4, c.last.NodePorts["tcp"]), testbed.Silence)
		return err
	})
	c.settle()
}

// podCost is what pods that come and go cost a proxy.
type podCost struct {
	cpu                  time.Duration
	syncs, full          float64
	transactions         int
	before, during, then ruleCount
}

// idleCPU returns the processor time that the proxy needs while no pods come and go.
func (c *podComparison) idleCPU() time.Duration {
	c.C.T.Helper()
	used := c.proxy.CPU(c.C.T)
	await.Span(podTime)
	used = c.proxy.CPU(c.C.T) - used
	c.recordPods("no pods", used)
	return used
}

func (c *podComparison) recordPods(scenario string, used time.Duration) {
	c.report.File.Records = append(c.report.File.Records, results.Record{Program: c.name, Scenario: scenario, Services: podServices,
		Endpoints: podEndpoints, Operation: "pods, processor time", Seconds: results.Durations([]time.Duration{used})})
}

// measurePods has pods come and go.
func (c *podComparison) measurePods(addresses hostAddresses) podCost {
	t := c.C.T
	t.Helper()
	c.kernel.Pending(t)
	cost := podCost{before: c.countRules()}
	syncs, full := c.syncs("kubeproxy_sync_proxy_rules"), c.syncs("kubeproxy_sync_full_proxy_rules")
	used := c.proxy.CPU(t)
	var counting sync.WaitGroup
	c.churn(addresses.all, func() { counting.Go(func() { cost.during = c.countRules() }) })
	counting.Wait()
	cost.transactions = len(c.settle())
	cost.cpu = c.proxy.CPU(t) - used
	cost.syncs, cost.full = c.syncs("kubeproxy_sync_proxy_rules")-syncs, c.syncs("kubeproxy_sync_full_proxy_rules")-full
	cost.then = c.countRules()
	c.recordPods(addresses.name, cost.cpu)
	return cost
}

// churn makes and removes pods at a fixed pace. It calls halfway when half of them
// have come.
func (c *podComparison) churn(addresses []netip.Addr, halfway func()) {
	t := c.C.T
	t.Helper()
	for i := range await.Ticks(nil, podPace) {
		if i == podStarts+podsAlive {
			return
		}
		if i == podStarts/2 {
			halfway()
		}
		if i < podStarts {
			if err := c.addPod(podLink(i), addresses); err != nil {
				t.Fatal(err)
			}
		}
		if i >= podsAlive {
			if err := c.removePod(podLink(i - podsAlive)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func podLink(i int) string { return fmt.Sprintf("veth%d", i) }

// addPod links the namespace of the pods and the node.
func (c *podComparison) addPod(name string, addresses []netip.Addr) error {
	err := c.pods.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsPid(c.proxy.Cmd.Process.Pid)}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("add link %s: %w", name, err)
		}
		return netlink.LinkSetUp(pair)
	})
	if err != nil {
		return err
	}
	return c.C.Node.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, a := range addresses {
			own := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: own}); err != nil {
				return fmt.Errorf("add address %s to %s: %w", a, name, err)
			}
		}
		return nil
	})
}

func (c *podComparison) removePod(name string) error {
	return c.C.Node.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addresses, err := netlinkio.Addresses(link)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() }) {
			return fmt.Errorf("link %s has no link-local address", name)
		}
		return netlink.LinkDel(link)
	})
}

// syncs returns how many syncs of a kind there were.
func (c *podComparison) syncs(kind string) (n float64) {
	c.C.T.Helper()
	err := c.C.Node.Do(func() (err error) {
		n, err = testbed.ReadMetric(testbed.MetricsServer, kind+`_duration_seconds_count{ip_family="IPv4"} `)
		return err
	})
	if err != nil {
		c.C.T.Fatal(err)
	}
	return n
}

// ruleCount is what nft lists on the node.
type ruleCount struct{ rules, elements int }

func (c *podComparison) countRules() (n ruleCount) {
	c.C.T.Helper()
	var listing struct {
		Objects []map[string]struct {
			Elements []json.RawMessage `json:"elem"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(c.C.Run(exec.Command("nft", "-j", "list", "ruleset"))), &listing); err != nil {
		c.C.T.Fatal(err)
	}
	for _, o := range listing.Objects {
		if _, ok := o["rule"]; ok {
			n.rules++
		}
		n.elements += len(o["set"].Elements) + len(o["map"].Elements)
	}
	return n
}

func (p podCost) print(w *tabwriter.Writer, name results.Program, addresses string, idle time.Duration) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, addresses, report.Seconds(idle.Seconds()), report.Seconds(p.cpu.Seconds()),
		p.syncs, p.full, p.transactions, p.before.rules, p.during.rules, p.then.rules, p.before.elements, p.during.elements, p.then.elements)
}
