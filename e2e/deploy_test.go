package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const deployDir = "../deploy"

// The API server accepts every manifest, and knows all of its fields (14.2,
// 14.5).
func TestManifests(t *testing.T) {
	c := newKubeadmCluster(t, 0)
	overlays, err := filepath.Glob(filepath.Join(deployDir, "kustomize/overlays/*"))
	if err != nil || len(overlays) == 0 {
		t.Fatalf("overlays: found %v, %v", overlays, err)
	}
	for _, dir := range append(overlays, filepath.Join(deployDir, "kustomize/base"), filepath.Join(deployDir, "kustomize/check")) {
		fmt.Fprintln(t.Output(), c.Kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", dir))
	}
	patches, err := filepath.Glob(filepath.Join(deployDir, "kubeadm/*.yaml"))
	if err != nil || len(patches) == 0 {
		t.Fatalf("patches: found %v, %v", patches, err)
	}
	for _, file := range patches {
		fmt.Fprintln(t.Output(), c.Kubectl("patch", "-n", systemNamespace, "daemonset", kubeProxyName, "--dry-run=server", "--patch-file", file))
	}
}

// The deployed proxy runs with the rights that it has there on the node and in
// the API server, and lacks none (14.1, 14.2, 14.7).
func TestDeployment(t *testing.T) {
	c := newCluster(t, 2)
	web := c.CreateService(testbed.WithNodePorts(testbed.DualStack("web")))
	c.SetEndpoints(web, c.Pods...)
	c.deploy("kustomize/base", "kustomize/base")
	proxy := c.startDaemonSet("nftproxy", testbed.NFTProxy)
	c.Served(web, c.Pods...)
	if log := proxy.Log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "forbidden") {
		t.Errorf("the proxy logs errors:\n%s", log)
	}
}

// deploy applies a kustomization below deployDir and returns its directory. It
// sets what differs in this cluster: the address of the API server, and
// settings in a copy of the configuration file.
func (c *cluster) deploy(kustomization, settings string) string {
	c.T.Helper()
	config, err := os.ReadFile(filepath.Join(deployDir, settings, "config.conf"))
	if err != nil {
		c.T.Fatal(err)
	}
	dir := c.writeFiles("overlay-"+filepath.Base(kustomization), map[string]string{"config.conf": ownConfig(string(config))})
	base, err := relative(dir, filepath.Join(deployDir, kustomization))
	if err != nil {
		c.T.Fatal(err)
	}
	c.writeFiles(filepath.Base(dir), map[string]string{"kustomization.yaml": `
resources: [` + base + `]
configMapGenerator:
- name: nftproxy
  namespace: kube-system
  behavior: merge
  literals: ["api-server=https://` + testbed.APIAddress + `"]
  files: [config.conf]
`})
	c.Kubectl("apply", "--validate=strict", "-k", dir)
	return dir
}

// ownConfig returns a configuration file of deployDir for the laboratory: with
// its range of pods, without a limit of connection tracking (startProxy), and
// with the OOM score that its processes have, as there is no kubelet that
// gives them the one in the file.
func ownConfig(config string) string {
	config = strings.NewReplacer(`clusterCIDR: ""`, "clusterCIDR: "+testbed.ClusterCIDRs,
		"oomScoreAdj: -997", "oomScoreAdj: 0").Replace(config)
	if !strings.Contains(config, "maxPerCore: 0") {
		config += "conntrack: {maxPerCore: 0}\n"
	}
	return config
}

// relative returns the way from one directory to another.
func relative(from, to string) (string, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}
