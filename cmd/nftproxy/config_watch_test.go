package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const configHeader = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// TestConfigRejected: a running process continues if it could not start again,
// and ends for content that it can start with (12.50).
func TestConfigRejected(t *testing.T) {
	ns := netlab.TestNamespace(t)
	web := webOn(netip.MustParseAddr("10.128.1.1"))
	api := apilab.Start(t, ns, node+"\n---\n"+web)
	path := filepath.Join(t.TempDir(), "config.conf")
	write := func(body string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(configHeader+"conntrack: {maxPerCore: 0}\n"+body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	p := start(t, ns, "nftproxy", "run", "--config", path, "--master", api.URL, "--hostname-override", "node-1")
	eventually(t, "it serves", func() bool { return rendered(t, ns, "10.96.0.10:80") })
	for _, c := range []struct{ body, want string }{
		{"clusterCIDR: [", "did not find expected node content"},
		{"clientConnection: {kubeconfig: /nowhere/kubeconfig.conf}", "/nowhere/kubeconfig.conf"},
	} {
		write(c.body)
		eventually(t, "it rejects "+c.body, func() bool {
			return strings.Contains(p.log.String(), "the previous configuration stays in use") && strings.Contains(p.log.String(), c.want)
		})
	}
	api.Set(t, strings.ReplaceAll(web, "10.96.0.10", "10.96.0.20"))
	eventually(t, "it follows a change", func() bool { return rendered(t, ns, "10.96.0.20:80") })
	write("clusterCIDR: 10.128.0.0/9")
	p.ends(t, cli.CodeNo)
	if !strings.Contains(p.log.String(), "has changed: ending") {
		t.Errorf("it ends for another reason: %s", &p.log)
	}
}
