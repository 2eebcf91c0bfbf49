package ecmp

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	servicePort = 80
	serverPort  = 8080

	// A server has several ports for the same, so that there can be more backends.
	serverPorts = 4
	portStep    = 10

	bulkPort       = 81
	bulkServerPort = 8081
)

// setting is how the nodes serve.
type setting struct {
	name      string
	scheduler string
	// kubernetes: the nodes are those of a cluster, with a server on each, and have a
	// Service. Otherwise they have a Balance.
	kubernetes bool
	local      bool  // externalTrafficPolicy: Local
	affinity   bool  // sessionAffinity: ClientIP
	endpoints  []int // of a Service, by server; none: one on each server
	keep       bool  // client addresses
	answers    way
	backends   int  // of a Balance, in each family; 0: one on each server
	strict     bool // nf_conntrack_tcp_loose is 0
	synced     bool // conntrackd on all nodes

	tcp, udp share // that is kept when the path moves
	refuses  bool  // some connections cannot be opened
}

// way is where servers send their answers to clients.
type way int

const (
	toOwnNode  way = iota // server n to node n, as a pod does
	toSameNode            // that which the request came from
)

// serveOn has nftproxy serve on all nodes.
func (l *lab) serveOn(s setting) {
	l.t.Helper()
	l.apply(s)
	for i := range l.nodes {
		l.servers[i].TestScript(l.t, `ip route replace default via "10.1.0.$1" && ip route replace default via "fd00:10:1::$2"`,
			fmt.Sprint(firstNode+i), fmt.Sprintf("%x", firstNode+i))
	}
	if s.answers == toSameNode {
		for _, server := range l.servers {
			l.returnToNode(server)
		}
	}
	for i, n := range l.nodes {
		if s.strict {
			n.TestScript(l.t, "echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
		}
		if s.synced {
			l.sync(n, i)
		}
	}
	// Neighbours are resolved then: a router passes over a next hop that it is resolving.
	l.openFlows()
}

// apply has nftproxy write its rules on all nodes.
func (l *lab) apply(s setting) {
	l.t.Helper()
	for _, n := range l.nodes {
		l.applyTo(n, s)
	}
}

// applyTo has nftproxy write its rules on a node.
func (l *lab) applyTo(n *netlab.Host, s setting) {
	l.t.Helper()
	file := filepath.Join(l.t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(s.objects()), 0o644); err != nil {
		l.t.Fatal(err)
	}
	args := []string{"apply", "-q", "-f", file, "--hostname-override", n.Name}
	if s.kubernetes {
		args = append(args, "--cluster-cidr", "10.1.0.0/24,fd00:10:1::/64")
	}
	if out, err := n.Output(binary, args...); err != nil {
		l.t.Fatalf("nftproxy %v: %v\n%s", args, err, out)
	}
}

// syncConfig is conntrackd's for nodes that are all active: what one node tracks is put
// into the kernels of the others immediately.
const syncConfig = `Sync {
	Mode NOTRACK {
		DisableExternalCache yes
		StartupResync yes
	}
	Multicast {
		IPv4_address 225.0.0.50
		Group 3780
		IPv4_interface 10.1.0.%[1]d
		Interface back
		SndSocketBuffer 1249280
		RcvSocketBuffer 1249280
		Checksum on
	}
}
General {
	HashSize 65536
	HashLimit 262144
	LockFile %[2]s/conntrackd.lock
	UNIX {
		Path %[2]s/conntrackd.ctl
	}
	NetlinkBufferSize 2097152
	NetlinkBufferSizeMaxGrowth 8388608
	Filter From Kernelspace {
		Protocol Accept {
			TCP
			UDP
		}
		Address Ignore {
			IPv4_address 10.1.0.%[1]d
		}
	}
}
`

// sync starts conntrackd on node i.
func (l *lab) sync(n *netlab.Host, i int) {
	l.t.Helper()
	dir := l.t.TempDir()
	file := filepath.Join(dir, "conntrackd.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, syncConfig, firstNode+i, dir), 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.start(n, "conntrackd", "-C", file)
	netlab.Eventually(l.t, patience, func() error {
		if out, err := n.Output("conntrackd", "-C", file, "-s"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// start starts a program on a host, which ends with the test.
func (l *lab) start(on *netlab.Host, name string, args ...string) {
	l.t.Helper()
	var log netlab.LogBuffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, time.Second
	if err := on.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if l.t.Failed() {
			fmt.Fprintf(l.t.Output(), "%s on %s:\n%s\n", name, on.Name, log.String())
		}
	})
}

// objects returns what all nodes have, as YAML.
func (s *setting) objects() string {
	addresses := "keep"
	if !s.keep {
		addresses = "masquerade"
	}
	if !s.kubernetes {
		return s.balance("web", servicePort, serverPort, "", addresses) + s.balance("web-udp", servicePort, serverPort, "/udp", addresses) +
			s.balance("bulk", bulkPort, bulkServerPort, "", addresses)
	}
	policy, kept, affinity := "Cluster", "", "None"
	if s.affinity {
		affinity = "ClientIP"
	}
	if s.local {
		policy = "Local"
	}
	if s.keep && !s.local {
		kept = ", nftproxy.dev/client-addresses: keep"
	}
	text := fmt.Sprintf(`---
{kind: Service, apiVersion: v1, metadata: {name: web, annotations: {nftproxy.dev/scheduler: %s%s}},
 spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, externalTrafficPolicy: %s, sessionAffinity: %s, clusterIPs: [10.96.0.1, 'fd00:10:96::1'], clusterIP: 10.96.0.1, ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack,
 ports: [{name: tcp, port: 80}, {name: udp, protocol: UDP, port: 80}]}, status: {loadBalancer: {ingress: [{ip: 198.51.100.10}, {ip: '2001:db8:64::10'}]}}}
`, s.scheduler, kept, policy, affinity)
	on := s.endpoints
	if on == nil {
		on = all
	}
	for family, format := range []string{networks["back"].v4, networks["back"].v6} {
		var endpoints []string
		for _, n := range on {
			endpoints = append(endpoints, fmt.Sprintf("{addresses: ['%s'], nodeName: node-%d, conditions: {ready: true}}", fmt.Sprintf(format, firstServer+n-1), n))
		}
		text += fmt.Sprintf(`---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {name: web-%d, labels: {kubernetes.io/service-name: web}}, addressType: %s,
 ports: [{name: tcp, port: 8080}, {name: udp, protocol: UDP, port: 8080}], endpoints: [%s]}
`, family, []string{"IPv4", "IPv6"}[family], strings.Join(endpoints, ", "))
	}
	return text
}

// balance returns a Balance.
func (s *setting) balance(name string, port, server uint16, suffix, addresses string) string {
	var listen, backends []string
	for _, f := range model.Families {
		listen = append(listen, fmt.Sprintf("'%s%s'", netip.AddrPortFrom(virtual[f], port), suffix))
	}
	for i := range cmp.Or(s.backends, nodes) {
		for _, format := range []string{networks["back"].v4, networks["back"].v6} {
			backend := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, firstServer+i%nodes)), server+uint16(i/nodes*portStep))
			backends = append(backends, fmt.Sprintf("'%s'", backend))
		}
	}
	return fmt.Sprintf("---\n{kind: Balance, name: %s, listen: [%s], backends: [%s], scheduler: %s, clientAddresses: %s}\n",
		name, strings.Join(listen, ", "), strings.Join(backends, ", "), s.scheduler, addresses)
}

// returnToNode makes a server send the answers of a connection to the node that its last
// request came from: the link-layer address selects a mark, and that a route.
func (l *lab) returnToNode(server *netlab.Host) {
	l.t.Helper()
	var macs []string
	var routes strings.Builder
	for i, n := range l.nodes {
		mac, err := n.Output("sh", "-ec", `ip -o link show back | sed 's,.*link/ether \([^ ]*\).*,\1,'`)
		if err != nil {
			l.t.Fatal(err)
		}
		macs = append(macs, fmt.Sprintf("%s : %d", strings.TrimSpace(mac), i+1))
		for option, format := range map[string]string{"-4": networks["back"].v4, "-6": networks["back"].v6} {
			fmt.Fprintf(&routes, "ip %s rule add fwmark %d table %d && ip %[1]s route add default via %[4]s table %[3]d\n",
				option, i+1, 100+i, fmt.Sprintf(format, firstNode+i))
		}
	}
	server.TestScript(l.t, routes.String())
	l.nft(server, fmt.Sprintf(returnRules, strings.Join(macs, ", ")))
}

// nft loads rules.
func (l *lab) nft(on *netlab.Host, rules string) {
	l.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	var out netlab.LogBuffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(rules), &out, &out
	if err := on.Run(cmd); err != nil {
		l.t.Fatalf("nft on %s: %v\n%s", on.Name, err, out.String())
	}
}

// returnRules are those of a server, without the addresses of the nodes.
const returnRules = `table inet answers {
	map nodes {
		type ether_addr : mark
		elements = { %s }
	}
	chain prerouting {
		type filter hook prerouting priority mangle
		ct mark set ether saddr map @nodes
	}
	chain output {
		type route hook output priority mangle
		meta mark set ct mark
	}
}
`
