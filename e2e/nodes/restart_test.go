package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet or containerd of a node is stopped and started: no request fails,
// and no rule is written.
func TestRestartBesideProxy(t *testing.T) {
	for _, x := range []struct {
		name    string
		restart func(n *kubelets.Node, t *testing.T) error
	}{
		{"kubelet", func(n *kubelets.Node, _ *testing.T) error {
			n.Kubelet.Stop()
			return n.StartKubelet()
		}},
		{"containerd", func(n *kubelets.Node, t *testing.T) error {
			n.Containerd.Stop()
			return n.StartContainerd(t.Context())
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := on(t, kubelets.NFTProxy)
			n := c.Node("n1")
			l := c.startLoad(t, everywhere...)
			before, pod := c.rules(t, n), c.proxyPod(t, n.Name)
			if err := x.restart(n, t); err != nil {
				t.Fatal(err)
			}
			c.heardFrom(t, n)
			if after := c.rules(t, n); after != before {
				t.Errorf("rules before:\n%s\nafter:\n%s", before, after)
			}
			if p := c.proxyPod(t, n.Name); p.UID != pod.UID || p.Status.ContainerStatuses[0].RestartCount != pod.Status.ContainerStatuses[0].RestartCount {
				t.Errorf("nftproxy was restarted as well")
			}
			l.check()
		})
	}
}

// rules returns nftproxy's tables, with the handles of their rules: those are
// other ones if a rule is written again.
func (c *cluster) rules(t *testing.T, n *kubelets.Node) string {
	t.Helper()
	var all string
	for _, family := range []string{"ip", "ip6"} {
		out, err := n.Output("nft", "-a", "list", "table", family, "nftproxy")
		if err != nil {
			t.Fatal(err)
		}
		all += out
	}
	return all
}

// heardFrom waits until the kubelet of a node has reported after now that it is
// ready.
func (c *cluster) heardFrom(t *testing.T, n *kubelets.Node) {
	t.Helper()
	begin := time.Now()
	eventually(t, func() error {
		node, err := c.API.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, s := range node.Status.Conditions {
			if s.Type == corev1.NodeReady && s.Status == corev1.ConditionTrue && s.LastHeartbeatTime.Time.After(begin) {
				return nil
			}
		}
		return fmt.Errorf("node %s: %+v", n.Name, node.Status.Conditions)
	})
}

// A node loses power and starts again, without rules. Requests to its servers fail
// until the controller has removed them from the endpoints; from then on none
// fails, also not when the node returns. Then it serves again.
func TestNodeRestart(t *testing.T) {
	c := on(t, kubelets.NFTProxy)
	n := c.Node("n3")
	l := c.startLoad(t, place{node: "n2", frontends: []frontends{clusterIPs, nodePorts("n1"), balanced}},
		place{node: "n1", host: true, frontends: []frontends{clusterIPs, nodePorts("n1"), balanced}},
		place{frontends: []frontends{nodePorts("n1")}})
	begin := time.Now()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return c.noServerOn(t, n) })
	removed := time.Since(begin)
	l.quiet()
	fmt.Fprintf(t.Output(), "endpoints removed %.0f s after the loss of power; all requests answered after %.0f s:\n%s\n",
		removed.Seconds(), time.Since(begin).Seconds(), table(column{"nftproxy, until then", l.since(l.started)}))
	l.mark()
	l.result() // some requests without the node

	begin = time.Now()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.heardFrom(t, n)
	ready := time.Since(begin)
	eventually(t, func() error {
		if p := c.proxyPod(t, n.Name); !condition(p, corev1.PodReady) {
			return fmt.Errorf("pod %s is not ready", p.Name)
		}
		return nil
	})
	c.rules(t, n)
	fmt.Fprintf(t.Output(), "node ready %.0f s after its start, nftproxy ready after %.0f s\n", ready.Seconds(), time.Since(begin).Seconds())
	c.rollOut(t) // servers return to the node
	l.check()
	l.end()
	c.startLoad(t, place{node: "n3", frontends: []frontends{clusterIPs, nodePorts("n3"), balanced}},
		place{frontends: []frontends{nodePorts("n3"), balanced}}).check()
}

// noServerOn checks that no EndpointSlice has a server on a node that is ready.
func (c *cluster) noServerOn(t *testing.T, n *kubelets.Node) error {
	list, err := c.API.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return err
	}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if *e.NodeName == n.Name && *e.Conditions.Ready {
				return fmt.Errorf("%s is ready on %s", e.Addresses, n.Name)
			}
		}
	}
	return nil
}
