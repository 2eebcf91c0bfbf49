package nodes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// smoke runs the smoke test of the migration guide, as an operator would.
func (c *cluster) smoke(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := c.Smoke(t.Context(), args...)
	fmt.Fprintf(t.Output(), "deploy/smoke/run %s\n%s\n", strings.Join(args, " "), out)
	return out, err
}

// The smoke test passes with either proxy, and sees a path that does not work.
func TestSmoke(t *testing.T) {
	for _, proxy := range []kubelets.Proxy{kubelets.KubeProxy, kubelets.NFTProxy} {
		t.Run(string(proxy), func(t *testing.T) {
			c := on(t, proxy)
			out, err := c.smoke(t)
			if err != nil || !strings.HasSuffix(out, "\nAll paths work.\n") || strings.Contains(out, "FAIL") {
				t.Fatal(err)
			}
			// From a pod and from the host on 3 nodes, for 2 families.
			if n := strings.Count(out, "PASS"); n < 100 {
				t.Errorf("%d paths passed", n)
			}
		})
	}
	c := &shared
	n := c.NodeList[0]
	onNode(t, n, "nft", "add table inet broken; add chain inet broken in { type filter hook prerouting priority -300; };"+
		" add rule inet broken in iif lo accept; add rule inet broken in udp dport 30000-32767 drop")
	t.Cleanup(func() { onNode(t, n, "nft", "delete table inet broken") })
	out, err := c.smoke(t, n.Name)
	if err == nil || !strings.Contains(out, "FAIL  outside  NodePort, UDP "+n.IPv4) || !strings.Contains(out, "Some paths FAILED.") {
		t.Errorf("with a node that drops datagrams to NodePorts: %v", err)
	}
	if out, err := c.smoke(t, "--delete"); err != nil {
		t.Error(out, err)
	}
}

// onNode runs a command on a node.
func onNode(t *testing.T, n *kubelets.Node, name string, args ...string) {
	t.Helper()
	if out, err := n.Output(name, args...); err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
}
