package neighbours

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	coreDNSModule = "github.com/coredns/coredns"
	dnsPort       = 53
	dnsDomain     = "cluster.local"
)

// dnsNode is a node with kube-dns on two pods, and one more pod, which resolves.
type dnsNode struct {
	*testbed.Cluster
	program           testbed.Program // CoreDNS
	kubeDNS, upstream testbed.Service // the same endpoints
	servers           []*netlab.Host
	caches            map[model.Family]*nodeCache
	names             atomic.Int32 // asked so far
}

// newDNSNode starts the servers. nftproxy does not run yet.
func newDNSNode(t *testing.T) *dnsNode {
	t.Helper()
	n := &dnsNode{Cluster: testbed.NewCluster(t, 3), caches: map[model.Family]*nodeCache{},
		program: testbed.BuildTool(t, "coredns", coreDNSModule)}
	n.kubeDNS, n.upstream = n.createDNS("kube-dns"), n.createDNS("kube-dns-upstream")
	n.servers = n.Pods[:2]
	for _, p := range n.servers {
		n.StopEcho(p)
		file := n.write(p.Name, fmt.Sprintf(`
.:%d {
	template IN TXT %s { 
		answer "{{ .Name }} 60 IN TXT %s"
	}
}
`, testbed.EchoPort, dnsDomain, p.Name))
		testbed.StartCommand(t, p, "coredns", exec.Command(n.program.Path, "-conf", file))
	}
	n.setServers(n.servers...)
	return n
}

func (n *dnsNode) createDNS(name string) testbed.Service {
	n.T.Helper()
	spec := testbed.DualStack(name)
	for i := range spec.Spec.Ports {
		spec.Spec.Ports[i].Port = dnsPort
	}
	return n.CreateService(spec)
}

func (n *dnsNode) setServers(servers ...*netlab.Host) {
	n.T.Helper()
	n.SetEndpoints(n.kubeDNS, servers...)
	n.SetEndpoints(n.upstream, servers...)
}

func (n *dnsNode) write(name, content string) string {
	n.T.Helper()
	file := filepath.Join(n.Dir, name+".Corefile")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		n.T.Fatal(err)
	}
	return file
}

// nodeLocal is what Kubernetes' manifest of NodeLocal DNSCache says.
type nodeLocal struct{ version, corefile string }

func readNodeLocal(t *testing.T) (n nodeLocal) {
	t.Helper()
	manifest := filepath.Join(testbed.ToolModule(t, ".", "k8s.io/kubernetes", "Dir"), "cluster/addons/dns/nodelocaldns/nodelocaldns.yaml")
	content, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(content), "\n---\n") {
		var c corev1.ConfigMap
		var d appsv1.DaemonSet
		if err := errors.Join(yaml.Unmarshal([]byte(document), &c), yaml.Unmarshal([]byte(document), &d)); err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
		if c.Kind == "ConfigMap" {
			n.corefile = c.Data["Corefile"]
		}
		if d.Kind == "DaemonSet" {
			_, n.version, _ = strings.Cut(d.Spec.Template.Spec.Containers[0].Image, "node-cache:")
		}
	}
	return n
}

// nodeLocalConfig writes the configuration of the cache of a family.
func (n *dnsNode) nodeLocalConfig(f model.Family, addresses []netip.Addr) string {
	n.T.Helper()
	upstream, local, server := n.upstream.Frontend(f).Addr().String(), addresses[0].String(), ""
	if len(addresses) > 1 {
		server = addresses[1].String()
	}
	config := strings.NewReplacer(
		"health __PILLAR__LOCAL__DNS__:8080", "health "+netip.AddrPortFrom(addresses[0], 8080).String(),
		"prometheus :9253", fmt.Sprintf("prometheus %s", netip.AddrPortFrom(addresses[0], 9253)),
		"__PILLAR__DNS__DOMAIN__", dnsDomain, "__PILLAR__LOCAL__DNS__", local, "__PILLAR__DNS__SERVER__", server,
		"__PILLAR__CLUSTER__DNS__", upstream, "__PILLAR__UPSTREAM__SERVERS__", upstream,
	).Replace(readNodeLocal(n.T.(*testing.T)).corefile)
	return n.write("node-cache-"+local, config)
}

// clients are those that resolve.
func (n *dnsNode) clients() []*netlab.Host { return []*netlab.Host{n.Pods[2], n.Node} }

// ask asks for a name that nothing was asked for before, and returns the server
// that has answered.
func (n *dnsNode) ask(from *netlab.Host, network string, server netip.Addr) (string, error) {
	return n.askFor(n.newName(), from, network, server)
}

func (n *dnsNode) newName() string { return fmt.Sprintf("q%d.%s.", n.names.Add(1), dnsDomain) }

func (n *dnsNode) askFor(name string, from *netlab.Host, network string, server netip.Addr) (string, error) {
	c, err := from.DialContext(context.Background(), network, netip.AddrPortFrom(server, dnsPort).String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	answer, err := exchange(c, network, name)
	if err != nil {
		return "", fmt.Errorf("from %s to %s %s: %w", from.Name, network, server, err)
	}
	return answer, nil
}

// exchange sends a query over a connection, and returns the text of the answer.
func exchange(c net.Conn, network, name string) (string, error) {
	query := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassINET}}}
	message, err := query.Pack()
	if err != nil {
		return "", err
	}
	if network == "tcp" {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	if err := c.SetDeadline(time.Now().Add(testbed.Strict)); err != nil {
		return "", err
	}
	if _, err := c.Write(message); err != nil {
		return "", err
	}
	reply := make([]byte, 1500)
	if network == "tcp" {
		if _, err := io.ReadFull(c, reply[:2]); err != nil {
			return "", err
		}
	}
	length, err := c.Read(reply)
	if err != nil {
		return "", err
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(reply[:length]); err != nil {
		return "", err
	}
	if len(answer.Answers) != 1 || answer.Questions[0].Name.String() != name {
		return "", fmt.Errorf("unexpected answer %v to %s", &answer, name)
	}
	return strings.Join(answer.Answers[0].Body.(*dnsmessage.TXTResource).TXT, " "), nil
}

// answered waits until all clients get answers of a number of servers at an
// address for one name: more than one without a cache in between.
func (n *dnsNode) answered(servers int, address func(model.Family) netip.Addr) {
	n.T.Helper()
	for _, from := range n.clients() {
		for _, network := range []string{"udp", "tcp"} {
			for _, f := range model.Families {
				testbed.Eventually(n.T, func() error {
					name, got := n.newName(), map[string]bool{}
					for range 6 {
						server, err := n.askFor(name, from, network, address(f))
						if err != nil {
							return err
						}
						got[server] = true
					}
					if len(got) != servers {
						return fmt.Errorf("from %s, %s to %s: answers of %v, want %d servers", from.Name, network, address(f), got, servers)
					}
					return nil
				})
			}
		}
	}
}

func (n *dnsNode) clusterIP(f model.Family) netip.Addr { return n.kubeDNS.Frontend(f).Addr() }
func (n *dnsNode) local(f model.Family) netip.Addr     { return localDNS[f] }

// direct waits until the ClusterIP leads to the servers.
func (n *dnsNode) direct() { n.T.Helper(); n.answered(len(n.servers), n.clusterIP) }

// cached waits until the caches answer, on the ClusterIP as well if they have it.
func (n *dnsNode) cached(withClusterIP bool) {
	n.T.Helper()
	n.answered(1, n.local)
	if withClusterIP {
		n.answered(1, n.clusterIP)
	}
}

// refused waits until nothing answers on the addresses of the caches.
func (n *dnsNode) refused() {
	n.T.Helper()
	for _, f := range model.Families {
		for _, a := range []netip.Addr{n.local(f), n.clusterIP(f)} {
			testbed.Eventually(n.T, func() error {
				if _, err := n.ask(n.Pods[2], "udp", a); !errors.Is(err, syscall.ECONNREFUSED) {
					return fmt.Errorf("%s: got %v, want refused", a, err)
				}
				return nil
			})
		}
	}
}

// refusesOtherPorts checks a port that kube-dns does not have.
func (n *dnsNode) refusesOtherPorts() {
	n.T.Helper()
	for _, f := range model.Families {
		testbed.Eventually(n.T, func() error {
			return testbed.WantRefused(n.Pods[2], "tcp", netip.AddrPortFrom(n.clusterIP(f), dnsPort+1))
		})
	}
}

// dnsSocket asks the ClusterIP from one UDP port.
type dnsSocket struct {
	net.Conn
	n *dnsNode
}

// dnsSockets opens a socket for each family on the pod that resolves.
func (n *dnsNode) dnsSockets() (all []dnsSocket) {
	n.T.Helper()
	for _, f := range model.Families {
		c, err := n.Pods[2].DialContext(n.T.Context(), "udp", netip.AddrPortFrom(n.clusterIP(f), dnsPort).String())
		if err != nil {
			n.T.Fatal(err)
		}
		n.T.Cleanup(func() { c.Close() })
		all = append(all, dnsSocket{c, n})
	}
	return all
}

func (s dnsSocket) ask() (string, error) { return exchange(s, "udp", s.n.newName()) }

// goOn waits until the sockets are answered.
func (n *dnsNode) goOn(sockets []dnsSocket) {
	n.T.Helper()
	for _, s := range sockets {
		testbed.Eventually(n.T, func() error {
			_, err := s.ask()
			return err
		})
	}
}

// queries is clients that ask without pause.
type queries struct {
	t       testing.TB
	stop    chan struct{}
	running sync.WaitGroup
	counts  []*testbed.Count
}

// startQueries starts clients of the caches, and of kube-dns.
func (n *dnsNode) startQueries(clusterIP bool) *queries {
	q := &queries{t: n.T, stop: make(chan struct{})}
	for _, from := range n.clients() {
		for _, network := range []string{"udp", "tcp"} {
			for _, f := range model.Families {
				if clusterIP {
					q.start(func() error { _, err := n.ask(from, network, n.clusterIP(f)); return err })
				}
				if n.caches[f] != nil {
					q.start(func() error { _, err := n.ask(from, network, n.local(f)); return err })
				}
			}
		}
	}
	n.T.Cleanup(q.end)
	return q
}

func (q *queries) start(ask func() error) {
	count := &testbed.Count{}
	q.counts = append(q.counts, count)
	q.running.Go(func() {
		for {
			if !await.Pace(q.stop, testbed.Pause) {
				return
			}
			start := time.Now()
			err := ask()
			count.Add(time.Since(start), err)
		}
	})
}

// end stops the clients. They can be ended again.
func (q *queries) end() {
	select {
	case <-q.stop:
	default:
		close(q.stop)
	}
	q.running.Wait()
}

// check ends the load, and fails the test if a query was not answered.
func (q *queries) check() {
	q.t.Helper()
	q.end()
	all := &testbed.Count{}
	for _, c := range q.counts {
		if c.Requests == 0 {
			q.t.Error("a client has asked nothing")
		}
		all.Sum(c)
	}
	fmt.Fprintf(q.t.Output(), "queries: %v\n", all)
	if len(all.Failures) > 0 {
		q.t.Errorf("%d of %d queries failed", len(all.Failures), all.Requests)
	}
}
