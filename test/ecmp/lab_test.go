package ecmp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	nodes = 3 // and as many servers
	// clients is how many addresses dial.
	clients = 10
	// patience is how long a test waits for what must come.
	patience = 30 * time.Second
)

// lab is three nodes between two routers and the servers:
//
//	clients --+-- router-1 --+-- node-1 --+-- server-1
//	          |              +-- node-2 --+-- server-2
//	          +-- router-2 --+-- node-3 --+-- server-3
//	         out           front         back
type lab struct {
	t       testing.TB
	wires   *netlab.Namespace // has the bridges of the three networks
	outside *netlab.Host      // the clients are addresses of its own
	routers []*netlab.Host
	nodes   []*netlab.Host
	servers []*netlab.Host
	clients []*netlab.Host
	port    uint16   // last one that a client dialled from
	bfd     []string // the command that prints the sessions of BFD of the first router
}

// virtual are the addresses that clients dial.
var virtual = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("198.51.100.10"), model.IPv6: netip.MustParseAddr("2001:db8:64::10")}

// networks are those of the lab. The last byte of an address is the number of the host.
var networks = map[string]struct{ v4, v6 string }{
	"out": {"203.0.113.%d", "2001:db8:3::%x"}, "front": {"192.0.2.%d", "2001:db8:2::%x"}, "back": {"10.1.0.%d", "fd00:10:1::%x"},
}

// Numbers of hosts.
const (
	firstRouter = 1
	firstNode   = 11
	firstServer = 21
	outside     = 9
)

// newLab builds the networks, without nftproxy. All nodes are in the routes.
func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t: t, wires: netlab.TestNamespace(t), port: 20000}
	for name := range networks {
		l.wires.TestScript(l.t, `ip link add "$1" type bridge && ip link set "$1" up`, name)
	}
	l.outside = l.host("clients", outside, "out")
	for i := range 2 {
		r := l.host(fmt.Sprintf("router-%d", i+1), firstRouter+i, "out", "front")
		r.TestScript(l.t, `! [ -e /proc/sys/net/ipv4/fib_multipath_hash_seed ] || echo "$1" >/proc/sys/net/ipv4/fib_multipath_hash_seed # from Linux 6.11 on
			ip route add 198.18.0.0/24 via 203.0.113.9 && ip route add 2001:db8:18::/64 via 2001:db8:3::9`, fmt.Sprint(i+1))
		l.hashBy(r, fiveTuple)
		l.routers = append(l.routers, r)
	}
	for i := range nodes {
		n := l.host(fmt.Sprintf("node-%d", i+1), firstNode+i, "front", "back")
		n.TestScript(l.t, `ip route add default via 192.0.2.1 && ip route add default via 2001:db8:2::1`)
		l.nodes = append(l.nodes, n)
	}
	for i := range nodes {
		s := l.host(fmt.Sprintf("server-%d", i+1), firstServer+i, "back")
		l.serve(s)
		l.servers = append(l.servers, s)
	}
	for i := range clients {
		c, err := l.outside.Alias(netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:18::%x", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		l.clients = append(l.clients, c)
	}
	l.arriveBy(1)
	for _, r := range l.routers {
		l.spread(r, "mpath")
	}
	return l
}

// host makes a router with address n in networks.
func (l *lab) host(name string, n int, in ...string) *netlab.Host {
	l.t.Helper()
	ns := netlab.TestNamespace(l.t)
	ns.TestScript(l.t, `ip link set lo up
		cd /proc/sys/net
		for on in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 >$on; done
		for off in ipv4/conf/all/rp_filter ipv4/conf/default/rp_filter ipv4/conf/all/send_redirects ipv4/conf/default/send_redirects \
			ipv6/conf/default/accept_dad ipv4/icmp_ratemask ipv6/icmp/ratelimit; do echo 0 >$off; done`)
	h := &netlab.Host{Namespace: ns, Name: name}
	for _, network := range in {
		a4, a6 := netip.MustParseAddr(fmt.Sprintf(networks[network].v4, n)), netip.MustParseAddr(fmt.Sprintf(networks[network].v6, n))
		h.IPv4, h.IPv6 = a4, a6
		l.wires.TestScript(l.t, `ip link add "$1-$2" type veth peer name "$2" netns "$3" && ip link set "$1-$2" master "$2" up`, name, network, ns.Path())
		ns.TestScript(l.t, `ip link set "$1" up && ip address add "$2/24" dev "$1" && ip address add "$3/64" dev "$1" nodad`, network, a4.String(), a6.String())
	}
	return h
}

// serve starts the servers of a host.
func (l *lab) serve(h *netlab.Host) {
	l.t.Helper()
	for i := range uint16(serverPorts) {
		e, err := h.Echo(serverPort + i*portStep)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { e.Close() })
	}
	for _, f := range model.Families {
		bulk, err := h.Listen("tcp", netip.AddrPortFrom(h.Address(f), bulkServerPort).String())
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { bulk.Close() })
		go serveBulk(bulk)
	}
}

// hashing is how a router selects the next hop of a packet, by sysctls.
type hashing string

const (
	// fiveTuple: by addresses, protocol and ports. This is a policy of chosen fields, since
	// the policy of layer 4 would take the hash that the socket of a client in the same
	// kernel has given the packet.
	fiveTuple hashing = "3"
	// byAddresses: by source and destination. An ICMP error is treated as the packet in it.
	byAddresses hashing = "0"
)

func (l *lab) hashBy(r *netlab.Host, h hashing) {
	l.t.Helper()
	r.TestScript(l.t, `for family in ipv4 ipv6; do
		echo "$1" >/proc/sys/net/$family/fib_multipath_hash_policy
		echo 0x37 >/proc/sys/net/$family/fib_multipath_hash_fields
	done`, string(h))
}

// Numbers of nexthops and groups in the routers: those of IPv6 are higher by ten.
const (
	group   = 100
	ofIPv6  = 10
	buckets = "type resilient buckets 128 idle_timer 60"
)

// spread routes the virtual addresses to all nodes. kind is "mpath", where a change can
// move any flow, or "resilient", where it moves those of a nexthop that leaves.
func (l *lab) spread(r *netlab.Host, kind string) {
	l.t.Helper()
	var script strings.Builder
	script.WriteString("ip nexthop flush >/dev/null 2>&1\n") // with the routes
	for i := range nodes {
		for family, format := range []string{networks["front"].v4, networks["front"].v6} {
			fmt.Fprintf(&script, "ip nexthop add id %d via %s dev front\n", i+1+ofIPv6*family, fmt.Sprintf(format, firstNode+i))
		}
	}
	for family, to := range []netip.Addr{virtual[model.IPv4], virtual[model.IPv6]} {
		fmt.Fprintf(&script, "ip nexthop add id %d group %s %s\n", group+family*ofIPv6, members(family, 1, 2, 3), groupType(kind))
		fmt.Fprintf(&script, "ip route add %s nhid %d\n", netip.PrefixFrom(to, to.BitLen()), group+family*ofIPv6)
	}
	r.TestScript(l.t, script.String())
}

func groupType(kind string) string {
	if kind == "resilient" {
		return buckets
	}
	return ""
}

func members(family int, of ...int) string {
	var ids []string
	for _, n := range of {
		ids = append(ids, fmt.Sprint(n+ofIPv6*family))
	}
	return strings.Join(ids, "/")
}

// announce makes nodes the next hops, as BGP does when a node withdraws its routes or
// announces them again.
func (l *lab) announce(r *netlab.Host, kind string, of ...int) {
	l.t.Helper()
	typed := ""
	if kind == "resilient" {
		typed = "type resilient"
	}
	for family := range 2 {
		r.TestScript(l.t, fmt.Sprintf("ip nexthop replace id %d group %s %s", group+family*ofIPv6, members(family, of...), typed))
	}
}

// arriveBy makes a router the one that clients send to.
func (l *lab) arriveBy(router int) {
	l.t.Helper()
	l.outside.TestScript(l.t, `ip route replace default via "203.0.113.$1" && ip route replace default via "2001:db8:3::$1"`, fmt.Sprint(router))
}
