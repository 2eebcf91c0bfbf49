package nodes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	kernelRounds = 20
	manyServices = 1000
)

// kernelTimes are the times from the answer of the API server until the kernel of a node has a change.
type kernelTimes struct {
	load                string
	kubeProxy, nftProxy []time.Duration
	own, excess         fleet.Distribution // of converge for the nodes of nftproxy; empty: it did not measure
}

// BenchmarkKernelTimes compares a node of kube-proxy and two of nftproxy in one cluster: all follow the same
// changes, and are observed in the same way, from outside. The changes of converge are among these: its own
// figures have to agree with the observer. PAGE names the page for the table.
func BenchmarkKernelTimes(b *testing.B) {
	c := on(b, kubelets.NFTProxy)
	c.shareNodes(b)
	config := c.allow(b, "bench", "viewer", "converge")
	var all []kernelTimes
	for _, services := range []int{0, manyServices} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			if services > 0 {
				c.addServices(b, "many", services, "198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4")
			}
			count := len(strings.Fields(c.kubectl(b, "get", "services", "-A", "-o", "name")))
			for b.Loop() {
				for _, x := range []kernelTimes{c.follow(b, 0), c.follow(b, 3*time.Second), c.followConverge(b, config)} {
					x.load = fmt.Sprintf("%d Services: %s", count, x.load)
					fmt.Println(x.row()) // the log of a benchmark is cut short
					all = append(all, x)
				}
			}
		})
	}
	if page := os.Getenv("PAGE"); page != "" && !b.Failed() {
		if err := writeKernelTimes(page, all); err != nil {
			b.Error(err)
		}
	}
}

// shareNodes has kube-proxy serve the first node and nftproxy the others, until the test ends.
func (c *cluster) shareNodes(t testing.TB) {
	t.Helper()
	n := c.NodeList[0]
	c.withoutProxy(t, n)
	if out, err := n.Output("nftproxy", "cleanup"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.installKubeProxy(t)
	t.Cleanup(func() {
		_, err := c.Kubectl(context.Background(), "-n", "kube-system", "delete", "daemonset", "kube-proxy", "--cascade=foreground", "--wait")
		if err != nil {
			t.Error(err)
		}
		if out, err := n.Output("kube-proxy", "--cleanup"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "kube-proxy", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"`+n.Name+`"}}}}}`)
	for _, other := range c.NodeList[1:] {
		c.kubectl(t, "-n", "kube-system", "wait", "--for=delete", "pod", "-l", "k8s-app=kube-proxy", "--field-selector", "spec.nodeName="+other.Name, "--timeout=120s")
		if out, err := other.Output("kube-proxy", "--cleanup"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=120s")
}

// follow changes the endpoint of a Service. The next change comes when all nodes have the one before, and have rested.
func (c *cluster) follow(t testing.TB, rest time.Duration) kernelTimes {
	t.Helper()
	x := kernelTimes{load: "one change after the other"}
	if rest > 0 {
		x.load = fmt.Sprintf("a change after %s without one", rest)
	}
	const namespace, name = "default", "kernel-times"
	ctx := context.WithoutCancel(t.Context()) // for the removal
	port, protocol := int32(9), corev1.ProtocolTCP
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	if _, err := c.API.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.API.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}) }()
	kernels := c.observe(t, probes)
	objects := c.API.DiscoveryV1().EndpointSlices(namespace)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}
	if _, err := objects.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = objects.Delete(ctx, name, metav1.DeleteOptions{}) }()
	c.have(t, c.NodeList, kernels, "192.0.2.1") // the Service is new, which is not measured
	var changes []change
	for round := range kernelRounds {
		await.Pace(nil, rest) // a part of the load
		address := fmt.Sprintf("192.0.2.%d", round+2)
		patch := fmt.Appendf(nil, `{"endpoints":[{"addresses":[%q]}]}`, address)
		if _, err := objects.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		changes = append(changes, change{address, time.Now()})
		c.have(t, c.NodeList, kernels, address)
	}
	x.kubeProxy, x.nftProxy = times(c.NodeList[:1], kernels, changes), times(c.NodeList[1:], kernels, changes)
	return x
}

// change gives a Service an endpoint in place of another one.
type change struct {
	address  string
	answered time.Time
}

// have waits until nodes have an address.
func (c *cluster) have(t testing.TB, nodes []*kubelets.Node, kernels *sightings, address string) {
	t.Helper()
	for _, n := range nodes {
		kernels.await(t, n.Name, address)
	}
}

// times returns the times of changes that all nodes have.
func times(nodes []*kubelets.Node, kernels *sightings, changes []change) (out []time.Duration) {
	for _, n := range nodes {
		for _, w := range changes {
			out = append(out, max(0, kernels.of(n.Name, w.address).Sub(w.answered)))
		}
	}
	return out
}

// followConverge observes the changes of converge, whose figures have to agree. It does not wait for nodes of kube-proxy, and
// these skip changes.
func (c *cluster) followConverge(t testing.TB, config string) kernelTimes {
	t.Helper()
	x := kernelTimes{load: "by `converge`"}
	kernels := c.observe(t, probes)
	var r fleet.Convergence
	code := c.plugin(t, config, &r, "converge", "--rounds", fmt.Sprint(kernelRounds))
	if code != 0 || len(r.Changes) != kernelRounds || !r.Complete() || !slices.Equal(r.Uncovered, []string{c.NodeList[0].Name}) {
		t.Fatalf("code %d: %+v", code, r)
	}
	var changes []change
	for _, w := range r.Changes {
		address, _, _ := strings.Cut(w.Endpoint, ":")
		changes = append(changes, change{address, w.Answered})
	}
	c.have(t, c.NodeList[1:], kernels, changes[len(changes)-1].address)
	x.nftProxy = times(c.NodeList[1:], kernels, changes)
	x.own, x.excess = r.Times, r.Excess
	if seen := quantile(x.nftProxy, 90); seen > 2*seconds(r.Times.P90) || seconds(r.Times.P90-r.Excess.Max) > 2*seen {
		t.Errorf("converge says %s, by %s too long at most, and the kernels say %s", ms(seconds(r.Times.P90)), ms(seconds(r.Excess.Max)), ms(seen))
	}
	return x
}

// quantile returns the smallest time that at least that share does not exceed.
func quantile(times []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)*percent+99)/100-1]
}

func ms(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}

// row returns a row of the table.
func (x *kernelTimes) row() string {
	cells := []string{x.load}
	for _, times := range [][]time.Duration{x.kubeProxy, x.nftProxy} {
		if len(times) == 0 {
			cells = append(cells, "", "", "")
			continue
		}
		cells = append(cells, ms(quantile(times, 50)), ms(quantile(times, 90)), ms(quantile(times, 100)))
	}
	ratio, own := "", ""
	if x.own.Count > 0 {
		own = fmt.Sprintf("%s, too long by up to %s", ms(seconds(x.own.P50)), ms(seconds(x.excess.P50)))
	} else if n := quantile(x.nftProxy, 90); n > 0 { // half of the times may be 0
		ratio = fmt.Sprintf("%.3g", float64(quantile(x.kubeProxy, 90))/float64(n))
	}
	cells = append(cells, ratio, own)
	return "| " + strings.Join(cells, " | ") + " |"
}

func writeKernelTimes(page string, all []kernelTimes) error {
	machine, err := results.ThisMachine()
	if err != nil {
		return err
	}
	lines := []string{
		fmt.Sprintf("Linux %s, %d processors, kube-proxy %s in mode `nftables`, %s; %d changes each,\nto one node of kube-proxy and two of nftproxy.\n", machine.Kernel, machine.Cores,
			kubelets.KubernetesVersion, time.Now().UTC().Format(time.DateOnly), kernelRounds),
		"| | kube-proxy: p50 | p90 | max | nftproxy: p50 | p90 | max | kube-proxy / nftproxy, p90 | `converge` says: p50 |",
		"|---|---|---|---|---|---|---|---|---|",
	}
	for i := range all {
		lines = append(lines, all[i].row())
	}
	return report.RewriteFile(page, map[string]string{"kernel-times": strings.Join(lines, "\n")})
}
