package nodes

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// use makes a proxy the one of the cluster, as a DaemonSet.
func (c *cluster) use(t testing.TB, proxy kubelets.Proxy) {
	t.Helper()
	if c.runs(t, proxy) {
		return
	}
	c.removeProxies(t)
	if proxy == kubelets.KubeProxy {
		c.installKubeProxy(t)
	} else if err := c.Deploy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// runs reports whether the DaemonSet of a proxy is the only one, on all nodes.
func (c *cluster) runs(t testing.TB, proxy kubelets.Proxy) bool {
	t.Helper()
	sets, err := c.API.AppsV1().DaemonSets("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(sets.Items) == 1 && sets.Items[0].Name == string(proxy) && int(sets.Items[0].Status.NumberReady) == c.Nodes &&
		sets.Items[0].Spec.Template.Spec.Affinity == nil
}

// removeProxies removes the DaemonSets of all proxies, and their rules.
func (c *cluster) removeProxies(t testing.TB) {
	t.Helper()
	c.kubectl(t, "-n", "kube-system", "delete", "daemonset", "--all", "--cascade=foreground", "--wait")
	c.kubectl(t, "-n", "kube-system", "wait", "--for=delete", "pod", "-l", "k8s-app in (kube-proxy, nftproxy)", "--timeout=60s")
	for _, n := range c.NodeList {
		_, err := n.Output("kube-proxy", "--cleanup")
		_, err2 := n.Output("nftproxy", "cleanup")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
}

// kubeadm compiles kubeadm, once, and returns its path.
var kubeadm = sync.OnceValues(func() (string, error) {
	root, err := testbed.GoCommand("list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	return testbed.GoCommand("-C", filepath.Join(root, "tools"), "tool", "-n", "k8s.io/kubernetes/cmd/kubeadm")
})

// installKubeProxy has kubeadm install kube-proxy, as in every cluster that it
// makes.
func (c *cluster) installKubeProxy(t testing.TB) {
	t.Helper()
	program, err := kubeadm()
	if err != nil {
		t.Fatal(err)
	}
	input := filepath.Join(t.TempDir(), "kubeadm.yaml")
	server := netip.MustParseAddrPort(strings.TrimPrefix(c.Config.Host, "https://"))
	text := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
controlPlaneEndpoint: %s
networking: {podSubnet: %q, serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %s}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0}
`, kubelets.KubernetesVersion, server, c.ClusterCIDR(), server.Addr())
	if err := os.WriteFile(input, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := c.ControlCommand(t.Context(), program, "init", "phase", "addon", "kube-proxy", "--config", input, "--kubeconfig", c.Kubeconfig)
	if out, err := c.output(cmd); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=120s")
}
