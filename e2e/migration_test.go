package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// A node goes from kube-proxy to nftproxy and back as docs/migration.md says,
// while clients dial it without pause: no request fails and no connection
// breaks (12.59, 12.61).
func TestMigration(t *testing.T) {
	for _, way := range []struct {
		name string
		move func(*cluster) *testbed.Process
	}{{"node by node", (*cluster).moveNodeByNode}, {"in the DaemonSet of kubeadm", (*cluster).moveInDaemonSet}} {
		t.Run(way.name, func(t *testing.T) {
			c := newKubeadmCluster(t, 2)
			web := c.CreateService(testbed.WithNodePorts(testbed.DualStack("web")))
			c.SetEndpoints(web, c.Pods...)
			old := c.startDaemonSet(kubeProxyName, testbed.KubeProxy)
			c.Reached(web, c.Pods...)
			l := c.StartLoad(web)
			c.tryOnOneService()
			c.Reached(web, c.Pods...)

			old.End(t)
			l.Hold(2) // its rules are there
			proxy := way.move(c)
			testbed.Eventually(t, c.replaced)
			c.Reached(web, c.Pods...)
			l.Hold(2)

			c.installKubeProxy()
			proxy.End(t)
			c.startDaemonSet(kubeProxyName, testbed.KubeProxy)
			testbed.Eventually(t, c.kubeProxyIsBack)
			c.Run(exec.Command(testbed.NFTProxy.Path, "cleanup"))
			if err := c.tables("kube-proxy", "nftproxy"); err != nil {
				t.Error(err)
			}
			if strings.Contains(c.Rules(), marker) {
				t.Errorf("chain %s is left", marker)
			}
			c.Reached(web, c.Pods...)
			l.Check()
		})
	}
}

// tryOnOneService runs a second proxy beside kube-proxy for one labelled
// Service.
func (c *cluster) tryOnOneService() {
	c.T.Helper()
	const label = "service.kubernetes.io/service-proxy-name"
	s := c.CreateService(testbed.WithNodePorts(testbed.DualStack("labelled")))
	c.SetEndpoints(s, c.Pods...)
	c.Reached(s, c.Pods...)
	overlay := c.deploy("kustomize/overlays/canary", "kustomize/overlays/canary")
	second := c.startDaemonSet("nftproxy-canary", testbed.NFTProxy)
	c.Kubectl("label", "service", s.Name, label+"=nftproxy")
	c.Served(s, c.Pods...)
	if err := c.tables("kube-proxy", ""); err != nil {
		c.T.Error(err)
	}
	c.Kubectl("label", "service", s.Name, label+"-")
	c.Reached(s, c.Pods...)
	c.Kubectl("delete", "-k", overlay)
	second.End(c.T)
}

// moveNodeByNode has nftproxy in a DaemonSet of its own.
func (c *cluster) moveNodeByNode() *testbed.Process {
	c.T.Helper()
	m := &migration{c, c.Kubeconfig("admin", "system:masters")}
	m.changes("keep-off")
	m.changes("undo")
	if affinity := c.Kubectl("get", "-n", systemNamespace, "daemonset", kubeProxyName, "-o", "jsonpath={.spec.template.spec.affinity}"); affinity != `{"nodeAffinity":{}}` { // which asks for nothing
		c.T.Errorf("after the rollback the DaemonSet has the affinity %s", affinity)
	}
	m.changes("keep-off")
	c.deploy("kustomize/overlays/node-by-node", "kustomize/base")
	return c.startDaemonSet("nftproxy", testbed.NFTProxy)
}

// moveInDaemonSet has nftproxy in the DaemonSet of kube-proxy.
func (c *cluster) moveInDaemonSet() *testbed.Process {
	c.T.Helper()
	c.patchKubeProxy("take-over.yaml")
	return c.startDaemonSet(kubeProxyName, testbed.NFTProxy)
}

func (c *cluster) patchKubeProxy(file string) {
	c.T.Helper()
	c.Kubectl("patch", "-n", systemNamespace, "daemonset", kubeProxyName, "--patch-file", filepath.Join(deployDir, "kubeadm", file))
}

// marker is the chain of kube-proxy's tables that stays (12.62).
const marker = "served-by-nftproxy"

// replaced checks that nftproxy has its tables on the node, and that the marker
// replaces that of kube-proxy.
func (c *cluster) replaced() error {
	rules := c.Rules()
	for _, family := range []string{"ip", "ip6"} {
		if want := fmt.Sprintf("table %s kube-proxy {\n\tchain %s {\n\t}\n}\n", family, marker); !strings.Contains(rules, want) {
			return fmt.Errorf("table %s kube-proxy is not the marker alone", family)
		}
	}
	return c.tables("nftproxy", "")
}

// kubeProxyIsBack checks that kube-proxy has written its rules: its tables exist
// before, with the marker.
func (c *cluster) kubeProxyIsBack() error {
	rules := c.Rules()
	for _, family := range []string{"ip", "ip6"} {
		_, rest, _ := strings.Cut(rules, fmt.Sprintf("table %s kube-proxy {\n", family))
		if table, _, _ := strings.Cut(rest, "\n}\n"); !strings.Contains(table, "chain nat-prerouting {") {
			return fmt.Errorf("no rules in table %s kube-proxy", family)
		}
	}
	return nil
}

// tables checks that a proxy has its tables on the node, and that another one
// has none.
func (c *cluster) tables(there, gone string) error {
	rules := c.Rules()
	for _, family := range []string{"ip", "ip6"} {
		if !strings.Contains(rules, fmt.Sprintf("table %s %s {", family, there)) {
			return fmt.Errorf("no table %s %s", family, there)
		}
		if gone != "" && strings.Contains(rules, fmt.Sprintf("table %s %s {", family, gone)) {
			return fmt.Errorf("table %s %s is there", family, gone)
		}
	}
	return nil
}
