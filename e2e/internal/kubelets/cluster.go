package kubelets

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say what cluster to make.
type Options struct {
	Programs *Programs
	Families Families
	Nodes    int
	MaxPods  int       // on a node; 110, as the kubelet's default, if zero
	Log      io.Writer // reports progress
	Logs     string    // directory of the logs of all processes, which stays; in that of the cluster if empty
}

// Cluster is a running cluster.
type Cluster struct {
	Options
	Dir        string // of all files: keys, logs, nodes
	Kubeconfig string // of an administrator, for processes in Control
	Config     *rest.Config
	API        kubernetes.Interface
	Control    *netlab.Namespace // network of the control plane, and of clients outside of the nodes
	NodeList   []*Node

	lock      *os.File // as long as this process lives
	cgroups   string   // the directory of its nodes' cgroups
	authority *testbed.Authority
	processes []*Process // of the control plane
	balancer  *balancer
}

// Start makes a cluster without a service proxy, and waits until its nodes have
// registered. Pods reach no Service before a proxy runs.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return nil, fmt.Errorf("a cluster of %d nodes: want 1 to %d", o.Nodes, maxNodes)
	}
	if o.MaxPods == 0 {
		o.MaxPods = 110
	}
	c := &Cluster{Options: o}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	begin := time.Now()
	if c.Dir, c.lock, err = makeDir(os.TempDir()); err != nil {
		return err
	}
	c.cgroups = filepath.Base(c.Dir)
	if c.Logs == "" {
		c.Logs = filepath.Join(c.Dir, "log")
	}
	if err := os.MkdirAll(c.Logs, 0o755); err != nil {
		return err
	}
	if c.Control, err = netlab.NewNamespace(); err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	for i := range c.Nodes {
		n, err := c.addNode(i + 1)
		if err != nil {
			return err
		}
		if err := n.Start(ctx); err != nil {
			return fmt.Errorf("start node %s: %w", n.Name, err)
		}
	}
	if err := c.nodesReady(ctx); err != nil {
		return err
	}
	if err := c.startDNS(ctx); err != nil {
		return err
	}
	fmt.Fprintf(c.Log, "cluster of %d nodes, %s, after %.0f s; files in %s\n", c.Nodes, c.Families, time.Since(begin).Seconds(), c.Dir)
	return nil
}

// Close ends all processes and removes all files.
func (c *Cluster) Close() error {
	if c.balancer != nil {
		c.balancer.stop()
	}
	var errs []error
	for _, n := range c.NodeList {
		errs = append(errs, n.Kill())
	}
	for _, p := range c.processes {
		p.Kill()
	}
	if c.Control != nil {
		errs = append(errs, c.Control.Close())
	}
	if c.cgroups != "" {
		errs = append(errs, removeCgroups(c.cgroups))
	}
	errs = append(errs, os.RemoveAll(c.Dir))
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
	}
	return errors.Join(errs...)
}

// Node returns a node by its name, or nil.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.NodeList {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Kubectl runs kubectl as an administrator and returns what it prints.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return output(c.Control, c.ControlCommand(ctx, c.Programs.Path("kubectl"), args...))
}

// Apply creates or changes the objects of a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	cmd := c.ControlCommand(ctx, c.Programs.Path("kubectl"), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	_, err := output(c.Control, cmd)
	return err
}

// UserConfig writes the kubeconfig of a user, and returns its file.
func (c *Cluster) UserConfig(user string, groups ...string) (string, error) {
	file := filepath.Join(c.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	return file, c.authority.Kubeconfig(file, c.server(), user, groups...)
}

// server is the URL of the API server.
func (c *Cluster) server() string {
	return "https://" + net.JoinHostPort(c.Families.first(control4, control6), "6443")
}

// nodesReady waits until the nodes have registered, and gives them their pod
// ranges, which the CNI plugins already have, and zones.
func (c *Cluster) nodesReady(ctx context.Context) error {
	for i, n := range c.NodeList {
		err := waitFor(ctx, time.Minute, "node "+n.Name, func() error {
			node, err := c.API.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			node.Spec.PodCIDRs = c.Families.pick(nodePods4(n.index), nodePods6(n.index))
			node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
			node.Labels[corev1.LabelTopologyZone] = "zone-" + strconv.Itoa(i%3+1)
			_, err = c.API.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.Ready(ctx)
}

// Ready waits until all nodes are ready.
func (c *Cluster) Ready(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s")
	return err
}

//go:embed coredns.yaml
var dnsManifest string

// startDNS runs CoreDNS, which has no names but those of the cluster.
func (c *Cluster) startDNS(ctx context.Context) error {
	manifest := strings.NewReplacer("IMAGE", dnsImage, "CLUSTER-IP", c.Families.first(dns4, dns6)).Replace(dnsManifest)
	return c.Apply(ctx, manifest)
}

// connect makes the clients of this process, which dial in the network of the
// control plane.
func (c *Cluster) connect() (err error) {
	if c.Kubeconfig, err = c.UserConfig("admin", "system:masters"); err != nil {
		return err
	}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.Dial, c.Config.QPS = c.Control.DialContext, -1
	c.API, err = kubernetes.NewForConfig(c.Config)
	return err
}

// ControlPID is the id of a process in the network of the control plane.
func (c *Cluster) ControlPID() int { return c.processes[0].Cmd.Process.Pid }
