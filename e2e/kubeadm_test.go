package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/release"
)

// kubeadmInput is what the owner of a cluster tells kubeadm; maxPerCore as in
// startProxy.
var kubeadmInput = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + release.Kubernetes + `
controlPlaneEndpoint: ` + testbed.APIAddress + `
networking: {podSubnet: "` + testbed.ClusterCIDRs + `", serviceSubnet: "` + testbed.ServiceCIDRs + `"}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0}
`

// kubeProxyName is that of kubeadm's DaemonSet and of all that belongs to it.
const kubeProxyName = "kube-proxy"

// newKubeadmCluster makes a cluster in which kubeadm has installed kube-proxy.
func newKubeadmCluster(t *testing.T, pods int) *cluster {
	t.Helper()
	c := newCluster(t, pods)
	c.installKubeProxy()
	return c
}

// installKubeProxy lets kubeadm write what kube-proxy needs: a service account
// and its rights, a ConfigMap and a DaemonSet.
func (c *cluster) installKubeProxy() {
	c.T.Helper()
	dir := c.writeFiles("kubeadm", map[string]string{"input.yaml": kubeadmInput})
	c.Run(exec.Command(testbed.Kubeadm.Path, "init", "phase", "addon", "kube-proxy",
		"--config", filepath.Join(dir, "input.yaml"), "--kubeconfig", c.Kubeconfig("admin", "system:masters")))
}

// eachProxy runs a test for both service proxies in kubeadm's DaemonSet.
// kube-proxy passes as well, which proves that the test asks for the right
// thing.
func eachProxy(t *testing.T, test func(t *testing.T, c *cluster, proxy testbed.Program)) {
	for _, p := range []testbed.Program{testbed.KubeProxy, testbed.NFTProxy} {
		t.Run(p.Name, func(t *testing.T) { test(t, newKubeadmCluster(t, 2), p) })
	}
}

// nftproxy runs unchanged with the DaemonSet, the configuration file, the
// credentials and the rights that kubeadm has made for kube-proxy (12.2, 14.1,
// 14.2, 14.4, 14.5, 14.9).
func TestDaemonSetOfKubeadm(t *testing.T) {
	eachProxy(t, func(t *testing.T, c *cluster, proxy testbed.Program) {
		web := c.CreateService(testbed.WithNodePorts(testbed.DualStack("web")))
		c.SetEndpoints(web, c.Pods...)
		c.startDaemonSet(kubeProxyName, proxy)
		c.Reached(web, c.Pods...)
		c.SetEndpoints(web, c.Pods[1])
		c.Reached(web, c.Pods[1])
	})
}
