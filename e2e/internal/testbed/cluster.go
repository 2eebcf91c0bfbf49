package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	ServiceCIDRs = "10.96.0.0/16,fd00:10:96::/112"
	// ClusterCIDRs are the ranges of all pods (netlab.ClusterCIDRv4).
	ClusterCIDRs = "10.128.0.0/16,fd00:10:128::/48"
	// FirstServiceIP is that of the service of the API server.
	FirstServiceIP = "10.96.0.1"
	// APIAddress is where the API server is reached on its node. It listens on
	// the other addresses as well, and advertises one that pods can reach.
	APIAddress = "127.0.0.1:6443"
	// SecondAPIAddress is that of another API server, where a test starts one.
	SecondAPIAddress = "127.0.0.1:" + secondPort
	secondPort       = "6444"
	EtcdURL          = "http://127.0.0.1:2379"
	etcdPeer         = "http://127.0.0.1:2380"

	ProxyUser = "system:kube-proxy" // has the rights of a service proxy in every cluster
	NodeName  = "node"              // of the node that everything runs on
	EchoPort  = 8080
)

// Cluster is a laboratory with echo servers on its pods, and an API server and
// its etcd on its node.
type Cluster struct {
	*netlab.Lab
	T         testing.TB
	Dir       string
	Authority *Authority
	echoes    map[*netlab.Host]*netlab.Echo // that answer on the pods
	Flags     []string                      // of the API server, more than those of every test
	Unready   []string                      // checks of the API server that are not waited for
	Config    *rest.Config
	API       kubernetes.Interface
	Server    *Process
}

// NewCluster makes the cluster of a test, which from then on runs in parallel
// to others: they share nothing. A benchmark has the machine to itself. The
// flags are for the API server.
func NewCluster(t testing.TB, pods int, flags ...string) *Cluster {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	c := &Cluster{Lab: NewLab(t, pods), T: t, Dir: t.TempDir(), echoes: map[*netlab.Host]*netlab.Echo{}, Flags: flags}
	for _, p := range c.Pods {
		c.StartEcho(p)
	}
	c.writeKeys()
	c.connect()
	StartEtcd(t, c.Node, filepath.Join(c.Dir, "etcd"), EtcdURL)
	c.StartServer()
	c.ownService()
	c.createNode()
	return c
}

// StartEtcd starts etcd on a host.
func StartEtcd(t testing.TB, on *netlab.Host, dir, url string) *Process {
	t.Helper()
	return Start(t, on, etcd, "--data-dir", dir, "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", etcdPeer,
		"--initial-advertise-peer-urls", etcdPeer, "--initial-cluster", "default="+etcdPeer)
}

// NewLab makes a laboratory.
func NewLab(t testing.TB, pods int) *netlab.Lab {
	t.Helper()
	lab := netlab.TestLab(t, pods)
	return lab
}

// StartEcho starts the echo server of a pod.
func (c *Cluster) StartEcho(p *netlab.Host) {
	c.T.Helper()
	echo, err := p.Echo(EchoPort)
	if err != nil {
		c.T.Fatal(err)
	}
	c.echoes[p] = echo
	c.T.Cleanup(func() { echo.Close() })
}

// StopEcho makes a pod refuse new connections. Open ones stay open, so that a
// test notices if another program cuts them.
func (c *Cluster) StopEcho(p *netlab.Host) {
	c.T.Helper()
	if err := c.echoes[p].Close(); err != nil {
		c.T.Fatal(err)
	}
}

// writeKeys writes the keys and certificates of the API server.
func (c *Cluster) writeKeys() {
	c.T.Helper()
	var err error
	if c.Authority, err = NewAuthority(); err != nil {
		c.T.Fatal(err)
	}
	cert, key, err := c.Authority.Server(net.ParseIP("127.0.0.1"), net.ParseIP(FirstServiceIP))
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
func (c *Cluster) connect() {
	c.T.Helper()
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig("admin", "system:masters")); err != nil {
		c.T.Fatal(err)
	}
	c.Config.Dial, c.Config.QPS = c.Node.DialContext, -1
	c.API = c.ClientFor(c.Config)
}

func (c *Cluster) ClientFor(config *rest.Config) kubernetes.Interface {
	c.T.Helper()
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.T.Fatal(err)
	}
	return api
}

// Kubeconfig returns the file of a user.
func (c *Cluster) Kubeconfig(user string, groups ...string) string {
	c.T.Helper()
	file := filepath.Join(c.Dir, user+".kubeconfig")
	if err := c.Authority.Kubeconfig(file, "https://"+APIAddress, user, groups...); err != nil {
		c.T.Fatal(err)
	}
	return file
}

// StartServer starts the API server and waits until it is ready.
func (c *Cluster) StartServer() {
	c.T.Helper()
	c.LaunchServer()
	Eventually(c.T, c.ServerReady)
}

// LaunchServer starts the API server and does not wait for it.
func (c *Cluster) LaunchServer() {
	c.T.Helper()
	c.Server = c.startServer("6443")
}

// ServerReady returns nil if the API server is ready.
func (c *Cluster) ServerReady() error { return Ready(c.T, c.API, c.Unready...) }

// StartSecondServer starts another API server with the same etcd, waits until it
// is ready, and returns a client of it.
func (c *Cluster) StartSecondServer(flags ...string) kubernetes.Interface {
	c.T.Helper()
	c.startServer(secondPort, flags...)
	config := rest.CopyConfig(c.Config)
	config.Host = "https://" + SecondAPIAddress
	api := c.ClientFor(config)
	Eventually(c.T, func() error { return Ready(c.T, api) })
	return api
}

func (c *Cluster) startServer(port string, flags ...string) *Process {
	c.T.Helper()
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	return Start(c.T, c.Node, apiserver, slices.Concat([]string{
		"--etcd-servers", EtcdURL,
		"--bind-address", "0.0.0.0", "--secure-port", port, "--advertise-address", c.Node.IPv4.String(),
		"--tls-cert-file", file("server.crt"), "--tls-private-key-file", file("server.key"),
		"--client-ca-file", file("ca.crt"), "--anonymous-auth=false", "--authorization-mode", "RBAC", "--allow-privileged",
		"--service-cluster-ip-range", ServiceCIDRs,
		"--service-account-issuer", "https://" + APIAddress,
		"--service-account-key-file", file("server.key"), "--service-account-signing-key-file", file("server.key"),
	}, c.Flags, flags)...)
}

// Ready returns nil if the API server is ready, apart from some checks.
func Ready(t testing.TB, api kubernetes.Interface, but ...string) error {
	readyz := api.Discovery().RESTClient().Get().AbsPath("/readyz")
	for _, check := range but {
		readyz.Param("exclude", check)
	}
	return readyz.Do(t.Context()).Error()
}

// ownService waits for the Service that the API server makes for itself once it
// is ready.
func (c *Cluster) ownService() {
	c.T.Helper()
	Eventually(c.T, func() error {
		_, err := c.API.CoreV1().Services(Namespace).Get(c.T.Context(), "kubernetes", metav1.GetOptions{})
		return err
	})
}

// createNode does what a kubelet does that nftproxy needs.
func (c *Cluster) createNode() {
	c.T.Helper()
	nodes := c.API.CoreV1().Nodes()
	node, err := nodes.Create(c.T.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName},
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

// StartProxy starts nftproxy as a user. The limit of connection tracking is
// that of the machine: it cannot be set in a laboratory.
func (c *Cluster) StartProxy(user string) *Process {
	c.T.Helper()
	return Start(c.T, c.Node, NFTProxy, "run", "--kubeconfig", c.Kubeconfig(user), "--hostname-override", NodeName,
		"--cluster-cidr", ClusterCIDRs, "--conntrack-max-per-core", "0")
}

// RelayAPI makes the API server reachable on a host of its own network, at the
// address that is in every Kubeconfig.
func (c *Cluster) RelayAPI(host *netlab.Host) {
	c.T.Helper()
	l, err := host.Listen("tcp", APIAddress)
	if err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go c.relay(from)
		}
	}()
}

// relay connects a connection with the API server until either ends it.
func (c *Cluster) relay(from net.Conn) {
	defer from.Close()
	to, err := c.Node.DialContext(context.Background(), "tcp", APIAddress)
	if err != nil {
		return
	}
	go func() {
		defer to.Close()
		_, _ = io.Copy(to, from)
	}()
	_, _ = io.Copy(from, to)
}

// Generation returns a number that every transaction on the node's rules
// increments, whether it changes something or not.
func (c *Cluster) Generation() uint32 {
	c.T.Helper()
	return c.Node.TestGeneration(c.T)
}

// Takeover returns the number of transactions by which a new process takes over
// the tables of the previous one: one, if the kernel has tables with an owner.
func (c *Cluster) Takeover() uint32 {
	c.T.Helper()
	if strings.Contains(c.Rules(), "flags owner") {
		return 1
	}
	return 0
}

// TookOver waits until a new process has taken over the tables, and checks that
// it did nothing else since a generation.
func (c *Cluster) TookOver(since uint32, takeover uint32, when string) {
	c.T.Helper()
	Eventually(c.T, func() error {
		if got := c.Generation() - since; got != takeover {
			return fmt.Errorf("%s: %d transactions, want %d", when, got, takeover)
		}
		return nil
	})
}

// Commits checks how many transactions there were since a generation.
func (c *Cluster) Commits(since uint32, want uint32, when string) {
	c.T.Helper()
	if got := c.Generation() - since; got != want {
		c.T.Fatalf("%s: %d transactions, want %d", when, got, want)
	}
}

// WithoutOwnEndpoint keeps the API server from adding itself to its service and
// removing itself, so that all changes are those of the test.
const WithoutOwnEndpoint = "--endpoint-reconciler-type=none"

// Rules returns all nftables rules of the node, as the nft command lists them
// without counters.
func (c *Cluster) Rules() string {
	c.T.Helper()
	text := c.Run(exec.Command("nft", "--stateless", "list", "ruleset"))
	return owner.ReplaceAllString(arrivals.ReplaceAllString(text, "$1"), "")
}

// owner matches the program that nft names for a table with an owner. It looks for a process with the
// number of the owning socket, which the kernel takes from the process for its first socket only.
var owner = regexp.MustCompile(` # progname .*`)

// arrivals matches the connections of the last second, which packets note (see the
// package render).
var arrivals = regexp.MustCompile(`(?s)(\tmap affinity-arrivals \{[^}]*?)\t\telements = \{.*?\}\n`)

// StartProxyOn starts nftproxy on a host that has the addresses of the node.
func (c *Cluster) StartProxyOn(host *netlab.Host, flags ...string) *Process {
	c.T.Helper()
	return Start(c.T, host, NFTProxy, append([]string{"run", "--kubeconfig", c.Kubeconfig(ProxyUser),
		"--hostname-override", NodeName, "--cluster-cidr", ClusterCIDRs, "--conntrack-max-per-core", "0", "--profiling"}, flags...)...)
}

// HasSynced waits until the nftproxy of a host has compared its rules with the
// kernel.
func (c *Cluster) HasSynced(host *netlab.Host, p *Process) {
	c.T.Helper()
	Eventually(c.T, func() error { return c.Synced(host, p) })
}

// Synced returns nil if it has.
func (c *Cluster) Synced(host *netlab.Host, p *Process) error {
	c.T.Helper()
	const metric = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `
	p.CPU(c.T) // it runs
	return host.Do(func() error {
		v, err := ReadMetric(MetricsServer, metric)
		if err == nil && v == 0 {
			err = fmt.Errorf("no sync yet")
		}
		return err
	})
}
