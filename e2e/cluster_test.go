package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	serviceCIDRs = "10.96.0.0/16,fd00:10:96::/112"
	// clusterCIDRs are the ranges of all pods (netlab.ClusterCIDRv4).
	clusterCIDRs = "10.128.0.0/16,fd00:10:128::/48"
	// firstServiceIP is that of the service of the API server.
	firstServiceIP = "10.96.0.1"
	// apiAddress is where the API server is reached on its node. It listens on
	// the other addresses as well, and advertises one that pods can reach.
	apiAddress = "127.0.0.1:6443"
	etcdURL    = "http://127.0.0.1:2379"
	etcdPeer   = "http://127.0.0.1:2380"

	proxyUser = "system:kube-proxy" // has the rights of a service proxy in every cluster
	nodeName  = "node"              // of the node that everything runs on
	echoPort  = 8080
)

// cluster is a laboratory with echo servers on its pods, and an API server and
// its etcd on its node.
type cluster struct {
	*netlab.Lab
	T         testing.TB
	Dir       string
	Authority *authority
	echoes    map[*netlab.Host]*netlab.Echo // that answer on the pods
	Flags     []string                      // of the API server, more than those of every test
	Unready   []string                      // checks of the API server that are not waited for
	Config    *rest.Config
	API       kubernetes.Interface
	Server    *process
}

// newCluster makes the cluster of a test, which from then on runs in parallel
// to others: they share nothing. A benchmark has the machine to itself. The
// flags are those of the API server.
func newCluster(t testing.TB, pods int, flags ...string) *cluster {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	c := &cluster{Lab: newLab(t, pods), T: t, Dir: t.TempDir(), echoes: map[*netlab.Host]*netlab.Echo{}, Flags: flags}
	for _, p := range c.Pods {
		c.StartEcho(p)
	}
	c.writeKeys()
	c.connect()
	start(t, c.Node, etcd, "--data-dir", filepath.Join(c.Dir, "etcd"), "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL, "--listen-peer-urls", etcdPeer,
		"--initial-advertise-peer-urls", etcdPeer, "--initial-cluster", "default="+etcdPeer)
	c.StartServer()
	c.ownService()
	c.createNode()
	return c
}

// newLab makes a laboratory.
func newLab(t testing.TB, pods int) *netlab.Lab {
	t.Helper()
	lab := netlab.TestLab(t, pods)
	return lab
}

// startEcho starts the echo server of a pod.
func (c *cluster) StartEcho(p *netlab.Host) {
	c.T.Helper()
	echo, err := p.Echo(echoPort)
	if err != nil {
		c.T.Fatal(err)
	}
	c.echoes[p] = echo
	c.T.Cleanup(func() { echo.Close() })
}

// stopEcho makes a pod refuse what is new. Open connections are served on, so
// that a test sees whether somebody else cuts them.
func (c *cluster) StopEcho(p *netlab.Host) {
	c.T.Helper()
	if err := c.echoes[p].Close(); err != nil {
		c.T.Fatal(err)
	}
}

// writeKeys writes what the API server identifies itself and others by.
func (c *cluster) writeKeys() {
	c.T.Helper()
	var err error
	if c.Authority, err = newAuthority(); err != nil {
		c.T.Fatal(err)
	}
	cert, key, err := c.Authority.Server(net.ParseIP("127.0.0.1"), net.ParseIP(firstServiceIP))
	if err != nil {
		c.T.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca.crt": c.Authority.Pem(), "server.crt": cert, "server.key": key} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), content, 0o600); err != nil {
			c.T.Fatal(err)
		}
	}
}

// connect makes the client of the test, which dials on the node.
func (c *cluster) connect() {
	c.T.Helper()
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig("admin", "system:masters")); err != nil {
		c.T.Fatal(err)
	}
	c.Config.Dial, c.Config.QPS = c.Node.DialContext, -1
	c.API = c.ClientFor(c.Config)
}

func (c *cluster) ClientFor(config *rest.Config) kubernetes.Interface {
	c.T.Helper()
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.T.Fatal(err)
	}
	return api
}

// kubeconfig returns the file of a user.
func (c *cluster) Kubeconfig(user string, groups ...string) string {
	c.T.Helper()
	file := filepath.Join(c.Dir, user+".kubeconfig")
	if err := c.Authority.Kubeconfig(file, "https://"+apiAddress, user, groups...); err != nil {
		c.T.Fatal(err)
	}
	return file
}

// startServer starts the API server and waits until it is ready.
func (c *cluster) StartServer() {
	c.T.Helper()
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	c.Server = start(c.T, c.Node, apiserver, append([]string{
		"--etcd-servers", etcdURL,
		"--bind-address", "0.0.0.0", "--secure-port", "6443", "--advertise-address", c.Node.IPv4.String(),
		"--tls-cert-file", file("server.crt"), "--tls-private-key-file", file("server.key"),
		"--client-ca-file", file("ca.crt"), "--anonymous-auth=false", "--authorization-mode", "RBAC", "--allow-privileged",
		"--service-cluster-ip-range", serviceCIDRs,
		"--service-account-issuer", "https://" + apiAddress,
		"--service-account-key-file", file("server.key"), "--service-account-signing-key-file", file("server.key"),
	}, c.Flags...)...)
	eventually(c.T, func() error { return ready(c.T, c.API, c.Unready...) })
}

// ready asks the API server whether it is, but for some checks.
func ready(t testing.TB, api kubernetes.Interface, but ...string) error {
	readyz := api.Discovery().RESTClient().Get().AbsPath("/readyz")
	for _, check := range but {
		readyz.Param("exclude", check)
	}
	return readyz.Do(t.Context()).Error()
}

// ownService waits for the Service that the API server makes for itself once it
// is ready.
func (c *cluster) ownService() {
	c.T.Helper()
	eventually(c.T, func() error {
		_, err := c.API.CoreV1().Services(namespace).Get(c.T.Context(), "kubernetes", metav1.GetOptions{})
		return err
	})
}

// createNode does what a kubelet does that nftproxy needs.
func (c *cluster) createNode() {
	c.T.Helper()
	nodes := c.API.CoreV1().Nodes()
	node, err := nodes.Create(c.T.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{netlab.PodCIDRv4.String(), netlab.PodCIDRv6.String()}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: c.Node.IPv4.String()},
		{Type: corev1.NodeInternalIP, Address: c.Node.IPv6.String()},
	}
	if _, err := nodes.UpdateStatus(c.T.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// startProxy starts nftproxy as a user. The limit of connection tracking is
// that of the machine: it cannot be set in a laboratory.
func (c *cluster) StartProxy(user string) *process {
	c.T.Helper()
	return start(c.T, c.Node, nftproxy, "run", "--kubeconfig", c.Kubeconfig(user), "--hostname-override", nodeName,
		"--cluster-cidr", clusterCIDRs, "--conntrack-max-per-core", "0")
}

// generation returns a number that every transaction on the node's rules
// increments, whether it changes something or not.
func (c *cluster) Generation() uint32 {
	c.T.Helper()
	return c.Node.TestGeneration(c.T)
}

// takeover returns the number of transactions by which a new process takes over
// the tables of the one before: one, where the kernel has tables with an owner.
func (c *cluster) Takeover() uint32 {
	c.T.Helper()
	if strings.Contains(c.Rules(), "flags owner") {
		return 1
	}
	return 0
}

// tookOver waits until a new process has taken over the tables, which is all
// that it may have done since a generation.
func (c *cluster) TookOver(since uint32, takeover uint32, when string) {
	c.T.Helper()
	eventually(c.T, func() error {
		if got := c.Generation() - since; got != takeover {
			return fmt.Errorf("%s: %d transactions, want %d", when, got, takeover)
		}
		return nil
	})
}

// commits checks how many transactions there were since a generation.
func (c *cluster) Commits(since uint32, want uint32, when string) {
	c.T.Helper()
	if got := c.Generation() - since; got != want {
		c.T.Fatalf("%s: %d transactions, want %d", when, got, want)
	}
}

// withoutOwnEndpoint keeps the API server from writing itself into its service
// and out of it, so that all changes are those of the test.
const withoutOwnEndpoint = "--endpoint-reconciler-type=none"

// rules returns all nftables rules of the node, as the nft command lists them
// without counters.
func (c *cluster) Rules() string {
	c.T.Helper()
	return c.Run(exec.Command("nft", "--stateless", "list", "ruleset"))
}

// startProxyOn starts nftproxy on a host that has the addresses of the node.
func (c *cluster) StartProxyOn(host *netlab.Host, flags ...string) *process {
	c.T.Helper()
	return start(c.T, host, nftproxy, append([]string{"run", "--kubeconfig", c.Kubeconfig(proxyUser),
		"--hostname-override", nodeName, "--cluster-cidr", clusterCIDRs, "--conntrack-max-per-core", "0", "--profiling"}, flags...)...)
}

// hasSynced waits until the nftproxy of a host has compared its rules with the
// kernel.
func (c *cluster) HasSynced(host *netlab.Host, p *process) {
	c.T.Helper()
	const metric = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `
	eventually(c.T, func() error {
		p.CPU(c.T) // it runs
		return host.Do(func() error {
			v, err := readMetric(metricsServer, metric)
			if err == nil && v == 0 {
				err = fmt.Errorf("no sync yet")
			}
			return err
		})
	})
}
