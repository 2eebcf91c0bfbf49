package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// 14.16: the pods that check nodes before a migration need no account and one capability,
// see kube-proxy's rules, and run where the node is ready.
func TestCheckDaemonSet(t *testing.T) {
	c := newKubeadmCluster(t, 1)
	c.Kubectl("apply", "--validate=strict", "-k", filepath.Join(deployDir, "kustomize/check"))
	report := func(want ...string) *testbed.Process {
		t.Helper()
		p := c.startDaemonSet("nftproxy-check", testbed.NFTProxy)
		testbed.Eventually(t, func() error {
			for _, text := range want {
				if log := p.Log.String(); !strings.Contains(log, text) {
					return fmt.Errorf("no %q in\n%s", text, log)
				}
			}
			return nil
		})
		return p
	}
	report("ok       kernel: ", "ok       kube-proxy-rules: there are no rules").Kill()

	proxy := c.startDaemonSet(kubeProxyName, testbed.KubeProxy)
	for _, family := range []string{"ip", "ip6"} {
		testbed.Eventually(t, func() error { return c.Node.Run(exec.Command("nft", "list", "table", family, "kube-proxy")) })
	}
	report("warning  kube-proxy-rules: rules of kube-proxy: table ip kube-proxy, table ip6 kube-proxy", "\nready as ").Kill()
	proxy.Kill()

	c.Run(exec.Command("sysctl", "-w", "net.ipv4.ip_forward=0"))
	p := report("problem  forwarding: net.ipv4.ip_forward is 0", "NOT READY as ")
	if err := p.Cmd.Wait(); p.Cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("on a node that does not forward: %v", err)
	}
}
