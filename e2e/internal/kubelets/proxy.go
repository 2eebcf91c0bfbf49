package kubelets

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Proxy is a service proxy.
type Proxy string

const (
	NFTProxy  Proxy = "nftproxy"
	KubeProxy Proxy = "kube-proxy" // of KubernetesVersion, in mode nftables
)

// StartProxies starts a service proxy on each node, as a process beside the
// kubelet, and waits until it serves.
func (c *Cluster) StartProxies(ctx context.Context, proxy Proxy) error {
	for _, n := range c.NodeList {
		if err := n.startProxy(proxy); err != nil {
			return err
		}
	}
	for _, n := range c.NodeList {
		if err := n.proxyServes(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startProxy starts a service proxy on the node.
func (n *Node) startProxy(proxy Proxy) error {
	kubeconfig, err := n.c.UserConfig("system:kube-proxy")
	if err != nil {
		return err
	}
	config := filepath.Join(n.dir, "proxy.yaml")
	lines := []string{
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1", "kind: KubeProxyConfiguration", "mode: nftables",
		"clusterCIDR: " + n.c.ClusterCIDR(), "clientConnection: {kubeconfig: " + kubeconfig + "}", "hostnameOverride: " + n.Name,
		"healthzBindAddress: '" + n.c.Families.first("0.0.0.0:10256", "[::]:10256") + "'", "metricsBindAddress: 127.0.0.1:10249",
		noConntrackLimit, localhostToo, "logging: {verbosity: 2}",
	}
	command := []string{string(proxy), "--config", config}
	switch proxy {
	case NFTProxy:
		command = []string{"nftproxy", "run", "--config", config}
	case KubeProxy: // in nftproxy the gate is on
		lines = append(lines, "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}")
	}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	n.Proxy, err = n.run(string(proxy), command[0], command[1:]...)
	return err
}

// noConntrackLimit is a setting for both proxies: the limit of connection
// tracking cannot be set in a network namespace.
const noConntrackLimit = "conntrack: {maxPerCore: 0}"

// localhostToo serves NodePorts of TCP on localhost, which Kubernetes tests from 1.37 on.
const localhostToo = "nodePortAddresses: [primary, localhost]"

// ClusterCIDR is the range of all pods, of each family.
func (c *Cluster) ClusterCIDR() string { return c.Families.list(pods4, pods6) }

// proxyServes waits until the health page of the node's proxy answers.
func (n *Node) proxyServes(ctx context.Context) error {
	url := fmt.Sprintf("http://%s:10256/healthz", n.c.Families.first(n.IPv4, "["+n.IPv6+"]"))
	client := &http.Client{Transport: &http.Transport{DialContext: n.c.Control.DialContext, DisableKeepAlives: true}}
	return waitFor(ctx, time.Minute, "proxy of "+n.Name, func() error {
		if n.Proxy != nil && !n.Proxy.Running() {
			return fmt.Errorf("it ended: see %s", n.Proxy.Log)
		}
		r, err := client.Get(url)
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, r.Status)
		}
		return nil
	})
}

// overlay writes a kustomization of deploy/kustomize/base for this cluster, and
// returns its directory.
func (c *Cluster) overlay() (string, error) {
	base := filepath.Join(c.Programs.module, "../deploy/kustomize/base")
	config, err := os.ReadFile(filepath.Join(base, "config.conf"))
	if err != nil {
		return "", err
	}
	configText := strings.Replace(string(config), `clusterCIDR: ""`, `clusterCIDR: "`+c.ClusterCIDR()+`"`, 1)
	configText = strings.Replace(configText, "nodePortAddresses:\n- primary\n", localhostToo+"\n", 1)
	dir, err := os.MkdirTemp(c.Dir, "overlay-")
	if err != nil {
		return "", err
	}
	relative, err := filepath.Rel(dir, base)
	if err != nil {
		return "", err
	}
	kustomization := fmt.Sprintf(`resources: [%s]
images: [{name: nftproxy, newName: %s, newTag: %s}]
configMapGenerator:
- {name: nftproxy, namespace: kube-system, behavior: merge, files: [config.conf], literals: ["api-server=%s"]}
`, relative, NFTProxyImage, NFTProxyTag, c.server())
	for name, text := range map[string]string{"config.conf": configText + noConntrackLimit + "\n", "kustomization.yaml": kustomization} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Deploy applies deploy/kustomize/base as pods, and waits until they are ready.
func (c *Cluster) Deploy(ctx context.Context) error {
	dir, err := c.overlay()
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "-k", dir); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=120s")
	return err
}

// ControlCommand is a command in the network of the control plane, which
// administers the cluster.
func (c *Cluster) ControlCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HOME="+c.Dir)
	return cmd
}

// Test runs "kubectl nftproxy test" as an operator would, with an image for its pods and more arguments, and
// returns what it prints.
func (c *Cluster) Test(ctx context.Context, image string, args ...string) (string, error) {
	args = append([]string{"test", "--image", image, "--color", "never"}, args...)
	cmd := c.ControlCommand(ctx, c.Programs.Path("kubectl-nftproxy"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.Control.Run(cmd)
	return out.String(), err
}
