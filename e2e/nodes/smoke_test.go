package nodes

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// TestSmoke: 18.16. The test of connections passes with either proxy, and sees what another program
// drops.
func TestSmoke(t *testing.T) {
	for _, proxy := range []kubelets.Proxy{kubelets.KubeProxy, kubelets.NFTProxy} {
		t.Run(string(proxy), func(t *testing.T) {
			c := on(t, proxy)
			out, err := c.Test(t.Context(), labImage, "--outside")
			fmt.Fprintln(t.Output(), out)
			if passed := regexp.MustCompile(`^Services of all kinds: [0-9]{3,} passed, ([0-9]+ skipped, )?on 3 nodes\n`); err != nil || !passed.MatchString(out) {
				t.Fatal(err)
			}
		})
	}
	c := &shared
	n := c.NodeList[0]
	onNode(t, n, "nft", "add table inet broken; add chain inet broken in { type filter hook prerouting priority -150; };"+
		" add rule inet broken in iif lo accept; add rule inet broken in ct direction original udp dport 30000-32767 drop")
	t.Cleanup(func() { onNode(t, n, "nft", "delete table inet broken") })
	out, err := c.Test(t.Context(), labImage, "--outside", "--nodes", n.Name)
	if err == nil || !regexp.MustCompile(`(?m)^failed +n1 +node-port:udp +outside +NodePort udp `+strings.ReplaceAll(n.IPv4, ".", `\.`)+`:`).MatchString(out) || strings.Contains(out, "ClusterIP") {
		t.Errorf("with a node that drops datagrams to NodePorts: %v\n%s", err, out)
	}
}

// onNode runs a command on a node.
func onNode(t *testing.T, n *kubelets.Node, name string, args ...string) {
	t.Helper()
	if out, err := n.Output(name, args...); err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
}
