package neighbours

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// nodeLocalFinding returns that a case works with NodeLocal DNSCache, whose
// program is a CoreDNS that also adds addresses and rules to the node.
func nodeLocalFinding(t *testing.T, tried string) finding {
	return finding{Group: "DNS", Neighbour: "NodeLocal DNSCache", Version: readNodeLocal(t).version, Verdict: works, Case: tried +
		" (its configuration, addresses and rules with CoreDNS " + testbed.ToolModule(t, "coredns", coreDNSModule, "Version") + ")"}
}

// The cache has the ClusterIP of kube-dns, as beside kube-proxy in iptables mode:
// queries to it are not tracked, so that no nat chain sees them.
func TestNodeLocalDNSWithClusterIP(t *testing.T) {
	finds(t, nodeLocalFinding(t, "on the link-local address and the ClusterIP of kube-dns: pods and node resolve through it; "+
		"restarts of nftproxy and changes of kube-dns' endpoints under load (0 queries lost); "+
		"while it is stopped, the ClusterIP leads to kube-dns; after SIGKILL nothing answers until it runs again"))
	n := newDNSNode(t)
	proxy := n.StartProxy(testbed.ProxyUser)
	n.direct()
	n.startCaches(true)
	n.cached(true)
	n.refusesOtherPorts()

	load := n.startQueries(true)
	n.changeAndRestart(proxy)
	load.check()

	// One socket, and so one source port, asks the ClusterIP all the time.
	sockets := n.dnsSockets()
	for range 2 {
		n.stopCaches()
		n.direct()
		n.goOn(sockets)
		n.startCaches(true)
		n.cached(true)
		n.goOn(sockets)
	}
	n.killCaches()
	n.refused()
	n.runCaches()
	n.cached(true)
	n.goOn(sockets)
}

// The cache has its own address only, as beside kube-proxy in IPVS mode. It
// starts before nftproxy.
func TestNodeLocalDNSWithoutClusterIP(t *testing.T) {
	finds(t, nodeLocalFinding(t, "on the link-local address only, which is the kubelet's `--cluster-dns`: pods and node resolve through it, "+
		"and by the ClusterIP without it; restarts of nftproxy and changes of kube-dns' endpoints under load (0 queries lost)"))
	n := newDNSNode(t)
	n.startCaches(false)
	proxy := n.StartProxy(testbed.ProxyUser)
	n.cached(false)
	n.direct()

	load := n.startQueries(false)
	n.changeAndRestart(proxy)
	load.check()
	n.stopCaches()
	n.direct()
}

// changeAndRestart changes the endpoints of kube-dns, and starts nftproxy again
// after each change.
func (n *dnsNode) changeAndRestart(proxy *testbed.Process) {
	n.T.Helper()
	for _, servers := range [][]*netlab.Host{n.servers[:1], n.servers[1:], n.servers} {
		n.setServers(servers...)
		proxy.Stop(n.T)
		proxy = n.StartProxy(testbed.ProxyUser)
		n.HasSynced(n.Node, proxy)
	}
}

// Clients that keep one UDP socket follow the endpoints of kube-dns.
func TestKubeDNS(t *testing.T) {
	finds(t, finding{Group: "DNS", Neighbour: "CoreDNS", Version: testbed.ToolModule(t, "coredns", coreDNSModule, "Version"), Verdict: works,
		Case: "as kube-dns: clients that ask from one UDP port follow its endpoints; restarts of nftproxy and changes of endpoints under load (0 queries lost)"})
	n := newDNSNode(t)
	proxy := n.StartProxy(testbed.ProxyUser)
	n.direct()
	sockets, load := n.dnsSockets(), n.startQueries(true)
	for i := range 6 {
		server := n.servers[i%len(n.servers)]
		n.setServers(server)
		for _, s := range sockets {
			testbed.Eventually(t, func() error {
				if got, err := s.ask(); err != nil || got != server.Name {
					return fmt.Errorf("got an answer of %q, %v, want %s", got, err, server.Name)
				}
				return nil
			})
		}
		if i == 2 {
			proxy.Stop(t)
			n.StartProxy(testbed.ProxyUser)
		}
	}
	load.check()
}

// localDNS is what the caches listen on.
var localDNS = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("169.254.20.10"), model.IPv6: netip.MustParseAddr("fd00:169:254::10")}

// nodeCache is a NodeLocal DNSCache, which serves one family.
type nodeCache struct {
	addresses []netip.Addr
	command   func() *exec.Cmd
	process   *testbed.Process
}

// startCaches starts a cache for each family, with or without the address of
// kube-dns. Rules follow when they listen.
func (n *dnsNode) startCaches(withClusterIP bool) {
	n.T.Helper()
	for _, f := range model.Families {
		c := &nodeCache{addresses: []netip.Addr{localDNS[f]}}
		if withClusterIP {
			c.addresses = append(c.addresses, n.kubeDNS.Frontend(f).Addr())
		}
		file := n.nodeLocalConfig(f, c.addresses)
		c.command = func() *exec.Cmd { return exec.Command(n.program.Path, "-conf", file) }
		for _, a := range c.addresses {
			if err := n.Node.AddAddress(a); err != nil {
				n.T.Fatal(err)
			}
		}
		n.caches[f] = c
	}
	n.runCaches()
	if withClusterIP {
		n.direct() // the address alone attracts no query
	}
	n.changeRules("--insert")
}

// runCaches starts the programs of the caches.
func (n *dnsNode) runCaches() {
	n.T.Helper()
	for f, c := range n.caches {
		c.process = testbed.StartCommand(n.T, n.Node, "node-cache", c.command())
		testbed.Eventually(n.T, func() error {
			conn, err := n.Node.DialContext(n.T.Context(), "tcp", netip.AddrPortFrom(localDNS[f], dnsPort).String())
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
}

// stopCaches does what a cache does when it is asked to end: it stops listening,
// and removes its rules and addresses.
func (n *dnsNode) stopCaches() {
	n.T.Helper()
	for _, c := range n.caches {
		c.process.End(n.T)
	}
	n.changeRules("--delete")
	for f, c := range n.caches {
		for _, a := range c.addresses {
			if err := n.Node.RemoveAddress(a); err != nil {
				n.T.Fatal(err)
			}
		}
		delete(n.caches, f)
	}
}

// killCaches ends the caches, whose rules and addresses stay.
func (n *dnsNode) killCaches() {
	for _, c := range n.caches {
		c.process.Kill()
	}
}

// changeRules inserts or deletes the rules of the caches.
func (n *dnsNode) changeRules(verb string) {
	n.T.Helper()
	for f, c := range n.caches {
		program := map[model.Family]string{model.IPv4: "iptables-nft", model.IPv6: "ip6tables-nft"}[f]
		for _, a := range c.addresses {
			for _, r := range nodeLocalRules(a) {
				n.Run(exec.Command(program, append([]string{"--wait", "--table", r.table, verb, r.chain}, r.rule...)...))
			}
		}
	}
}

type iptablesRule struct {
	table, chain string
	rule         []string
}

// nodeLocalRules returns the rules of NodeLocal DNSCache for an address: its
// queries and answers are neither tracked nor filtered.
func nodeLocalRules(a netip.Addr) (rules []iptablesRule) {
	untracked := func(chain, protocol, side, port string) {
		rules = append(rules, iptablesRule{"raw", chain, match(protocol, side, a, port, "NOTRACK")})
	}
	for _, protocol := range []string{"tcp", "udp"} {
		untracked("PREROUTING", protocol, "d", "53")
		untracked("OUTPUT", protocol, "d", "53")
		untracked("OUTPUT", protocol, "s", "53")
		rules = append(rules, iptablesRule{"filter", "INPUT", match(protocol, "d", a, "53", "ACCEPT")},
			iptablesRule{"filter", "OUTPUT", match(protocol, "s", a, "53", "ACCEPT")})
	}
	untracked("OUTPUT", "tcp", "d", "8080") // health checks
	untracked("OUTPUT", "tcp", "s", "8080")
	return rules
}

// match returns a rule for packets from (s) or to (d) an address and port.
func match(protocol, side string, a netip.Addr, port, target string) []string {
	return []string{"-p", protocol, "-" + side, a.String(), "--" + side + "port", port, "-j", target}
}
