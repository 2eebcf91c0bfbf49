package compare

import (
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// start starts the proxy and returns when that was.
func (c *comparison) start() time.Time {
	c.C.T.Helper()
	file, config := filepath.Join(c.home, string(c.name)+".conf"), `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: `+c.C.Kubeconfig(testbed.ProxyUser)+`}
hostnameOverride: `+testbed.NodeName+`
clusterCIDR: "`+testbed.ClusterCIDRs+`"
conntrack: {maxPerCore: 0}
nftables: {minSyncPeriod: `+c.period.String()+`}
`+c.contender.config
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		c.C.T.Fatal(err)
	}
	begin := time.Now()
	c.proxy = testbed.Start(c.C.T, c.C.Node, c.program, append(c.verb(), "--config", file)...)
	return begin
}

// verb returns what comes before the flags.
func (c *comparison) verb() []string {
	if c.name == results.Nftproxy {
		return []string{"run"}
	}
	return nil
}

func (c *comparison) stop() {
	c.C.T.Helper()
	c.proxy.End(c.C.T)
	c.recordPeak(c.proxy.MostMemory())
}

// flush removes all rules.
func (c *comparison) flush() {
	c.C.T.Helper()
	c.C.Run(exec.Command("nft", "flush", "ruleset"))
	if _, ok := c.kernel.Next(c.C.T, testbed.Patience); !ok {
		c.C.T.Fatal("no transaction of nft flush ruleset")
	}
}
