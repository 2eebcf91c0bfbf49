package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// The check of all nodes as docs/check.md has it: the rollout succeeds when all nodes are
// ready, and the log of a node that is not names the problem (14.16).
func TestCheckAllNodes(t *testing.T) {
	c := on(t, kubelets.KubeProxy)
	base, err := filepath.Abs("../../deploy/kustomize/check")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\nimages: [{name: nftproxy, newName: %s, newTag: %s}]\n", relative, kubelets.NFTProxyImage, kubelets.NFTProxyTag)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "apply", "-k", dir)
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "-k", dir); err != nil {
			t.Error(err)
		}
	})
	rollout := func() {
		c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy-check", "--timeout=2m")
	}
	logs := func() string {
		return c.kubectl(t, "-n", "kube-system", "logs", "-l", "k8s-app=nftproxy-check", "--prefix", "--tail=-1", "--max-log-requests=1000")
	}

	rollout()
	all := logs()
	for _, want := range []string{"warning  kube-proxy-rules: rules of kube-proxy: table ip kube-proxy", "ok       forwarding: IPv4 forwards", " as a node of a cluster: "} {
		if got := strings.Count(all, want); got != len(c.NodeList) {
			t.Errorf("%d of %d nodes say %q:\n%s", got, len(c.NodeList), want, all)
		}
	}

	n := c.NodeList[0]
	onNode(t, n, "sysctl", "-w", "net.ipv4.ip_forward=0")
	t.Cleanup(func() { onNode(t, n, "sysctl", "-w", "net.ipv4.ip_forward=1") })
	c.kubectl(t, "-n", "kube-system", "delete", "pod", "-l", "k8s-app=nftproxy-check", "--field-selector=spec.nodeName="+n.Name)
	eventually(t, func() error {
		pods := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "k8s-app=nftproxy-check", "-o", "wide")
		if !strings.Contains(pods, "CrashLoopBackOff") || strings.Count(pods, "Running") != len(c.NodeList)-1 {
			return fmt.Errorf("pods:\n%s", pods)
		}
		return nil
	})
	if all = logs(); strings.Count(all, "problem  forwarding: net.ipv4.ip_forward is 0") != 1 || strings.Count(all, "NOT READY") != 1 {
		t.Errorf("with a node that does not forward:\n%s", all)
	}
	onNode(t, n, "sysctl", "-w", "net.ipv4.ip_forward=1")
	rollout()
}
