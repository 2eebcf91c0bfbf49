package neighbours

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// nodes are machines on one link, whose pods are configured by a network plugin,
// and a client outside of the cluster. nftproxy reads the Services from a file.
type nodes struct {
	t        *testing.T
	sw       *netlab.Switch
	client   *netlab.Host
	all      []*node
	services []*service
	file     string // with all objects
}

// node is one machine.
type node struct {
	*netlab.Host
	n     *nodes
	dir   string // with the state of plugins
	cidrs map[model.Family]netip.Prefix
	pods  []*netlab.Host
	proxy *testbed.Process
}

// service is a Service with a port for TCP and one for UDP.
type service struct {
	*corev1.Service
	number    int // of its ClusterIPs and NodePort
	endpoints []*netlab.Host
}

// newNodes makes nodes without pods. Each has a part of the cluster's range for
// its pods.
func newNodes(t *testing.T, count int) *nodes {
	t.Helper()
	sw, err := netlab.NewSwitch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sw.Close() })
	n := &nodes{t: t, sw: sw, file: filepath.Join(t.TempDir(), "objects.json")}
	if n.client, err = sw.AddHost("client", 2); err != nil {
		t.Fatal(err)
	}
	n.echo(n.client)
	for i := range count {
		host, err := sw.AddRouter(fmt.Sprintf("node-%d", i), 11+i)
		if err != nil {
			t.Fatal(err)
		}
		host.NodeName = host.Name
		// A node needs a route to every address, even if it is then translated.
		for _, f := range model.Families {
			if err := host.AddRoute(everything[f], n.client.Address(f)); err != nil {
				t.Fatal(err)
			}
		}
		n.all = append(n.all, &node{Host: host, n: n, dir: t.TempDir(), cidrs: map[model.Family]netip.Prefix{
			model.IPv4: netip.MustParsePrefix(fmt.Sprintf("10.128.%d.0/24", i+1)),
			model.IPv6: netip.MustParsePrefix(fmt.Sprintf("fd00:10:128:%x::/64", i+1)),
		}})
	}
	return n
}

var everything = map[model.Family]netip.Prefix{
	model.IPv4: netip.MustParsePrefix("0.0.0.0/0"),
	model.IPv6: netip.MustParsePrefix("::/0"),
}

// routes gives every node routes to the pods of the others.
func (n *nodes) routes() {
	n.t.Helper()
	for _, from := range n.all {
		for _, to := range n.all {
			for family, cidr := range to.cidrs {
				if from == to {
					continue
				}
				if err := from.AddRoute(cidr, to.Address(family)); err != nil {
					n.t.Fatal(err)
				}
			}
		}
	}
}

func (n *nodes) echo(h *netlab.Host) {
	n.t.Helper()
	e, err := h.Echo(testbed.EchoPort)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = e.Close() })
}

// addService adds a Service, which nftproxy serves from its start or the next
// write on.
func (n *nodes) addService(name string, change func(*corev1.ServiceSpec), endpoints ...*netlab.Host) *service {
	number := len(n.services) + 10
	s := testbed.WithNodePorts(testbed.DualStack(name, fmt.Sprintf("10.96.0.%d", number), fmt.Sprintf("fd00:10:96::%x", number)))
	s.Namespace = testbed.Namespace
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = int32(30000 + number)
	}
	if change != nil {
		change(&s.Spec)
	}
	made := &service{s, number, endpoints}
	n.services = append(n.services, made)
	return made
}

func localPolicy(s *corev1.ServiceSpec) {
	s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}
func affinity(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }

// target returns what clients of the Service in the cluster dial.
func (s *service) target(network string, f model.Family) testbed.Target {
	ip := netip.MustParseAddr(s.Spec.ClusterIPs[slices.Index(model.Families[:], f)])
	return testbed.Target{Network: network, Family: f, To: netip.AddrPortFrom(ip, testbed.ServicePort)}
}

// nodePort returns what clients outside dial.
func (s *service) nodePort(on *node, network string, f model.Family) testbed.Target {
	return testbed.Target{Network: network, Family: f, To: netip.AddrPortFrom(on.Address(f), uint16(s.Spec.Ports[0].NodePort))}
}

// write writes all objects to the file that the proxies follow.
func (n *nodes) write() {
	n.t.Helper()
	list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	add := func(apiVersion, kind string, o runtime.Object) {
		o.GetObjectKind().SetGroupVersionKind(gvk(apiVersion, kind))
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	for _, node := range n.all {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		for _, f := range model.Families {
			o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: node.Address(f).String()})
		}
		add("v1", "Node", o)
	}
	for _, s := range n.services {
		add("v1", "Service", s.Service)
		for _, f := range model.Families {
			slice := testbed.EndpointSlice(testbed.Service{Name: s.Name}, f, s.endpoints)
			slice.Namespace = testbed.Namespace
			add("discovery.k8s.io/v1", "EndpointSlice", slice)
		}
	}
	content, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(n.file+".new", content, 0o644)
	}
	if err == nil {
		err = os.Rename(n.file+".new", n.file)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// startProxies starts nftproxy on all nodes and waits for its rules.
func (n *nodes) startProxies() {
	n.t.Helper()
	n.write()
	for _, node := range n.all {
		node.proxy = testbed.Start(n.t, node.Host, testbed.NFTProxy, "run", "-f", n.file, "--hostname-override", node.Name,
			"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
	}
	for _, node := range n.all {
		testbed.Eventually(n.t, func() error {
			return node.Do(func() error {
				v, err := testbed.ReadMetric(testbed.MetricsServer, `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `)
				if err == nil && v == 0 {
					err = errors.New("no sync yet")
				}
				return err
			})
		})
	}
}

// run runs a command on the node and returns what it prints.
func (n *node) run(name string, args ...string) string {
	n.n.t.Helper()
	out, err := n.try(exec.Command(name, args...))
	if err != nil {
		n.n.t.Fatal(err)
	}
	return out
}

func (n *node) try(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := n.Host.Run(cmd); err != nil {
		return "", fmt.Errorf("%s on %s: %w\n%s%s", cmd, n.Name, err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// load loads nftables rules on the node.
func (n *node) load(rules string) {
	n.n.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if _, err := n.try(cmd); err != nil {
		n.n.t.Fatal(err)
	}
}
