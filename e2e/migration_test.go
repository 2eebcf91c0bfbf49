package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A node goes from kube-proxy to nftproxy and back as docs/migration.md says,
// while clients dial it without pause: no request fails and no connection
// breaks (12.59, 12.61).
func TestMigration(t *testing.T) {
	for _, way := range []struct {
		name string
		move func(*cluster) *process
	}{{"node by node", (*cluster).moveNodeByNode}, {"in the DaemonSet of kubeadm", (*cluster).moveInDaemonSet}} {
		t.Run(way.name, func(t *testing.T) {
			c := newKubeadmCluster(t, 2)
			web := c.createService(withNodePorts(dualStack("web")))
			c.setEndpoints(web, c.Pods...)
			old := c.startDaemonSet(kubeProxyName, kubeProxy)
			c.reached(web, c.Pods...)
			l := c.startLoad(web)
			c.tryOnOneService()
			c.reached(web, c.Pods...)

			old.end(t)
			l.hold(2) // its rules are there
			proxy := way.move(c)
			eventually(t, c.replaced)
			c.reached(web, c.Pods...)
			l.hold(2)

			c.installKubeProxy()
			proxy.end(t)
			c.startDaemonSet(kubeProxyName, kubeProxy)
			eventually(t, c.kubeProxyIsBack)
			c.run(exec.Command(nftproxy.path, "cleanup"))
			if err := c.tables("kube-proxy", "nftproxy"); err != nil {
				t.Error(err)
			}
			if strings.Contains(c.rules(), marker) {
				t.Errorf("chain %s is left", marker)
			}
			c.reached(web, c.Pods...)
			l.check()
		})
	}
}

// tryOnOneService has a second proxy beside kube-proxy serve a Service that is
// labelled for it.
func (c *cluster) tryOnOneService() {
	c.t.Helper()
	const label = "service.kubernetes.io/service-proxy-name"
	s := c.createService(withNodePorts(dualStack("labelled")))
	c.setEndpoints(s, c.Pods...)
	c.reached(s, c.Pods...)
	overlay := c.deploy("kustomize/overlays/canary", "kustomize/overlays/canary")
	second := c.startDaemonSet("nftproxy-canary", nftproxy)
	c.kubectl("label", "service", s.name, label+"=nftproxy")
	c.served(s, c.Pods...)
	if err := c.tables("kube-proxy", ""); err != nil {
		c.t.Error(err)
	}
	c.kubectl("label", "service", s.name, label+"-")
	c.reached(s, c.Pods...)
	c.kubectl("delete", "-k", overlay)
	second.end(c.t)
}

// moveNodeByNode has nftproxy in a DaemonSet of its own.
func (c *cluster) moveNodeByNode() *process {
	c.t.Helper()
	c.patchByTemplate("keep-off.tmpl")
	c.patchByTemplate("keep-off-undo.tmpl")
	if affinity := c.kubectl("get", "-n", systemNamespace, "daemonset", kubeProxyName, "-o", "jsonpath={.spec.template.spec.affinity}"); affinity != "" {
		c.t.Errorf("after the way back the DaemonSet has the affinity %s", affinity)
	}
	c.patchByTemplate("keep-off.tmpl")
	c.deploy("kustomize/overlays/node-by-node", "kustomize/base")
	return c.startDaemonSet("nftproxy", nftproxy)
}

// moveInDaemonSet has nftproxy in the DaemonSet of kube-proxy.
func (c *cluster) moveInDaemonSet() *process {
	c.t.Helper()
	c.patchKubeProxy("take-over.yaml")
	return c.startDaemonSet(kubeProxyName, nftproxy)
}

func (c *cluster) patchKubeProxy(file string) {
	c.t.Helper()
	c.kubectl("patch", "-n", systemNamespace, "daemonset", kubeProxyName, "--patch-file", filepath.Join(deployDir, "kubeadm", file))
}

// marker is the chain that stays of kube-proxy's tables (12.62).
const marker = "served-by-nftproxy"

// replaced checks that nftproxy has its tables on the node, and that the marker
// replaces that of kube-proxy.
func (c *cluster) replaced() error {
	rules := c.rules()
	for _, family := range []string{"ip", "ip6"} {
		if want := fmt.Sprintf("table %s kube-proxy {\n\tchain %s {\n\t}\n}\n", family, marker); !strings.Contains(rules, want) {
			return fmt.Errorf("table %s kube-proxy is not the marker alone", family)
		}
	}
	return c.tables("nftproxy", "")
}

// patchByTemplate applies the patch that kubectl makes of a template.
func (c *cluster) patchByTemplate(file string) {
	c.t.Helper()
	patch := c.kubectl("get", "-n", systemNamespace, "daemonset", kubeProxyName, "-o", "go-template-file="+filepath.Join(deployDir, "kubeadm", file))
	c.kubectl("patch", "-n", systemNamespace, "daemonset", kubeProxyName, "--type=json", "-p", patch)
}

// kubeProxyIsBack checks that kube-proxy has written its rules: its tables are there
// before, with the marker.
func (c *cluster) kubeProxyIsBack() error {
	rules := c.rules()
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
	rules := c.rules()
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
