package machine_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// node is a network namespace that forwards.
type node struct {
	*netlab.Namespace
	t *testing.T
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{netlab.TestNamespace(t), t}
	n.set("net/ipv4/ip_forward=1", "net/ipv6/conf/all/forwarding=1")
	return n
}

func (n *node) set(settings ...string) {
	n.t.Helper()
	err := n.Do(func() error {
		for _, s := range settings {
			name, value, _ := strings.Cut(s, "=")
			if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// run runs a shell script in the namespace.
func (n *node) run(script string) {
	n.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Run(cmd); err != nil {
		n.t.Fatalf("%s: %v\n%s", script, err, out.String())
	}
}

// check returns the findings that are not ok, or, with names, these checks' as well. It leaves out
// processes, which the tests share.
func (n *node) check(u machine.Use, alsoOK ...string) (out []string) {
	n.t.Helper()
	err := n.Do(func() error {
		for _, f := range machine.Check(machine.Read(), u) {
			if f.Check != "kube-proxy" && (f.Level != machine.OK || slices.Contains(alsoOK, f.Check)) {
				out = append(out, fmt.Sprintf("%s %s: %s", f.Level, f.Check, f.Message))
			}
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// matches compares findings with the beginnings of those that are wanted.
func matches(t *testing.T, got, want []string) {
	t.Helper()
	short := slices.Clone(got)
	for i, s := range short {
		if i < len(want) && strings.HasPrefix(s, want[i]) {
			short[i] = want[i]
		}
	}
	if diff := cmp.Diff(want, short); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

var families4 = []model.Family{model.IPv4}

var pods = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/16"), netip.MustParsePrefix("fd00:10:128::/48")}

func endpoints(all ...string) func(func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		for _, a := range all {
			if !yield(netip.MustParseAddr(a)) {
				return
			}
		}
	}
}

// condition is made in a namespace that is clean otherwise.
type condition struct {
	name   string
	set    []string
	script string
	use    machine.Use
	want   []string
}

func (c *condition) run(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.set(c.set...)
		n.run(c.script)
		matches(t, n.check(c.use), c.want)
	})
}

// TestSettings changes settings of the kernel (11.20).
func TestSettings(t *testing.T) {
	const two = "ip link add dev a type bridge; ip link add dev b type bridge; ip link set dev a up; ip link set dev b up; ip addr add 192.0.2.1/24 dev a; ip addr add 198.51.100.1/24 dev b; ip route add default dev a; "
	const bridge = "ip link add dev br type bridge; ip addr add 10.128.0.1/24 dev br; ip link set dev br up; for i in 1 2; do ip link add dev p$i type veth peer name q$i; ip link set dev p$i master br up; done; for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo 0 >$f; done; "
	for _, c := range []condition{
		{name: "clean"},
		{name: "clean, in a cluster", use: machine.Use{Cluster: true, PodRanges: pods}},
		{name: "no forwarding", set: []string{"net/ipv4/ip_forward=0", "net/ipv6/conf/all/forwarding=0"}, want: []string{
			"problem forwarding: net.ipv4.ip_forward is 0",
			"warning forwarding: net.ipv6.conf.all.forwarding is 0"}},
		{name: "no forwarding, endpoints on this machine", set: []string{"net/ipv4/ip_forward=0", "net/ipv6/conf/all/forwarding=0"},
			script: "ip link set lo up; ip addr add 192.0.2.1/32 dev lo", use: machine.Use{Endpoints: endpoints("192.0.2.1", "127.0.0.1", "::1")}},
		{name: "no forwarding, endpoints elsewhere", script: "ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip route add 192.0.2.0/24 dev a; ip route add 2001:db8::/64 dev a", set: []string{"net/ipv4/ip_forward=0", "net/ipv6/conf/all/forwarding=0"},
			use: machine.Use{Endpoints: endpoints("192.0.2.1", "2001:db8::1")}, want: []string{
				"problem forwarding: net.ipv4.ip_forward is 0: connections from other machines do not reach endpoints on other machines or in pods, such as 192.0.2.1",
				"problem forwarding: net.ipv6.conf.all.forwarding is 0: connections from other machines do not reach endpoints on other machines or in pods, such as 2001:db8::1"}},
		{name: "no forwarding, a relay connects", script: "ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip route add 192.0.2.0/24 dev a", set: []string{"net/ipv4/ip_forward=0", "net/ipv6/conf/all/forwarding=0"},
			use: machine.Use{Endpoints: endpoints(), Relayed: endpoints("192.0.2.1")}},
		{name: "no forwarding from an interface", script: two + "echo 0 >/proc/sys/net/ipv4/conf/a/forwarding", want: []string{
			"warning forwarding: net.ipv4.conf.*.forwarding is 0 for a"}},
		{name: "IPv6 is not served", set: []string{"net/ipv6/conf/all/forwarding=0"}, use: machine.Use{PodRanges: pods[:1], Families: families4}},

		{name: "strict reverse path, one uplink", set: []string{"net/ipv4/conf/all/rp_filter=1"}, script: two},
		{name: "strict reverse path, two uplinks", set: []string{"net/ipv4/conf/all/rp_filter=1"}, script: two + "ip route add default dev b table 7", want: []string{
			"warning rp-filter: rp_filter is strict (1) on a, b, and the machine has default routes by a, b"}},
		{name: "strict reverse path, policy routing", set: []string{"net/ipv4/conf/all/rp_filter=1"}, script: two + "ip rule add fwmark 7 table 7; echo 2 >/proc/sys/net/ipv4/conf/a/rp_filter", want: []string{
			"warning rp-filter: rp_filter is strict (1) on b, and the machine has 1 rule of policy routing"}},
		{name: "loose reverse path", set: []string{"net/ipv4/conf/all/rp_filter=2"}, script: two + "ip rule add fwmark 7 table 7"},

		{name: "a bridge", script: bridge, want: []string{"warning bridge-nf: net.bridge.bridge-nf-call-iptables is not 1: pods on the bridge br"}},
		{name: "a bridge, masqueradeAll", script: bridge, use: machine.Use{MasqueradeAll: true}},
		{name: "a bridge with endpoints", script: bridge, use: machine.Use{Cluster: true, Endpoints: endpoints("10.128.0.2")}, want: []string{"problem bridge-nf: "}},
		{name: "a bridge without endpoints", script: bridge + "ip route add 10.128.1.0/24 dev br", use: machine.Use{Cluster: true, Endpoints: endpoints("10.128.1.2")}},
	} {
		c.run(t)
	}
}

// 12.79: addresses of Services in a network of the machine that it does not answer for, and
// endpoints without a route.
func TestAddresses(t *testing.T) {
	const link = "ip link set lo up; ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip addr add 192.0.2.1/24 dev a; ip addr add 2001:db8::1/64 dev a nodad; "
	of := func(addresses ...string) machine.Use {
		return machine.Use{Endpoints: endpoints("192.0.2.9"), Addresses: endpoints(addresses...)}
	}
	const v4, v6 = "warning service-addresses: nothing on this machine answers ARP for 192.0.2.10, which is in the network of a: ",
		"warning service-addresses: nothing on this machine answers neighbour discovery for 2001:db8::10, which is in the network of a: "
	for _, c := range []condition{
		{name: "no interface has them", script: link, use: of("192.0.2.10", "2001:db8::10"), want: []string{v4 + "no interface has it", v6 + "no interface has it"}},
		{name: "several", script: link, use: of("192.0.2.10", "192.0.2.11", "192.0.2.10"), want: []string{
			"warning service-addresses: nothing on this machine answers ARP for 192.0.2.10, 192.0.2.11, which is in the network of a: no interface has them"}},
		{name: "addresses of the machine", script: link, use: of("192.0.2.1", "2001:db8::1")},
		{name: "added to the interface", script: link + "ip addr add 192.0.2.10/32 dev a; ip addr add 2001:db8::10/128 dev a nodad", use: of("192.0.2.10", "2001:db8::10")},
		{name: "on lo", script: link + "ip addr add 192.0.2.10/32 dev lo; ip addr add 2001:db8::10/128 dev lo", use: of("192.0.2.10", "2001:db8::10"), want: []string{
			v6 + "lo has it, for which a does not answer"}},
		{name: "on lo, arp_ignore", set: []string{"net/ipv4/conf/all/arp_ignore=1"}, script: link + "ip addr add 192.0.2.10/32 dev lo", use: of("192.0.2.10"), want: []string{
			v4 + "lo has it, for which a does not answer"}},
		{name: "a local range, a proxied address", script: link + "ip route add local 192.0.2.0/28 dev lo; ip -6 neigh add proxy 2001:db8::10 dev a", use: of("192.0.2.10", "2001:db8::10")},
		{name: "routed to here", script: link, use: of("203.0.113.10", "2001:db8:1::10")},
		{name: "of a cluster", script: link, use: machine.Use{Cluster: true, Addresses: endpoints("192.0.2.10")}},
		{name: "endpoints without a route", script: link, use: machine.Use{Endpoints: endpoints("198.51.100.1", "2001:db8:1::1", "192.0.2.9", "127.0.0.1")}, want: []string{
			"problem endpoint-routes: this machine has no route to 198.51.100.1, 2001:db8:1::1: connections to 2 endpoints fail"}},
		{name: "a server of a relay without a route", script: link, use: machine.Use{Endpoints: endpoints(), Relayed: endpoints("198.51.100.1")}, want: []string{
			"problem endpoint-routes: this machine has no route to 198.51.100.1: connections to 1 endpoint fail"}},
		{name: "a route that leads nowhere", script: link + "ip route add unreachable 198.51.100.0/24; ip route add default dev a", use: machine.Use{Endpoints: endpoints("198.51.100.1")}, want: []string{
			"problem endpoint-routes: this machine has no route to 198.51.100.1: connections to 1 endpoint fail"}},
		{name: "policy routing", script: link + "ip rule add iif a table 7; ip route add default dev a table 7", use: machine.Use{Endpoints: endpoints("198.51.100.1")}, want: []string{
			"warning endpoint-routes: this machine has no route to 198.51.100.1"}},
	} {
		c.run(t)
	}
}

// 8.8: routes that prefer another source than masquerading takes, and addresses to masquerade from.
func TestSources(t *testing.T) {
	const bgp = "ip link set lo up; ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip addr add 10.255.0.1/32 dev lo; ip addr add 10.1.0.0/31 dev a; ip route add default via 10.1.0.1 dev a src 10.255.0.1; "
	const anycast = "ip link set lo up; ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip addr add 192.0.2.99/32 dev lo; ip addr add 192.168.1.10/32 dev lo; ip route add default dev a src 192.168.1.10; "
	const v6 = "ip link set lo up; ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip addr add 2001:db8::1/128 dev lo nodad; ip addr add 2001:db8:1::1/64 dev a nodad; ip route add 2001:db8:2::/64 via 2001:db8:1::2 dev a src 2001:db8::1; "
	const two = "ip link set lo up; ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip addr add 192.0.2.1/24 dev a; ip addr add 198.51.100.1/24 dev a; ip addr add 192.0.2.9/24 dev a; ip addr add 2001:db8::1/64 dev a nodad; ip route add default via 192.0.2.7"
	from := func(all ...string) (u machine.Use) {
		for _, a := range all {
			u.MasqueradeFrom = append(u.MasqueradeFrom, netip.MustParseAddr(a))
		}
		return u
	}
	for _, c := range []condition{
		{name: "BGP on the host", script: bgp, want: []string{"warning masquerade-source: routes by a prefer the source 10.255.0.1 (default), and masquerading takes 10.1.0.0, "}},
		{name: "an anycast address", script: anycast, want: []string{"warning masquerade-source: routes by a prefer the source 192.168.1.10 (default), and masquerading takes 192.0.2.99, "}},
		{name: "IPv6", script: v6, want: []string{"warning masquerade-source: routes by a prefer the source 2001:db8::1 (2001:db8:2::/64), and masquerading takes 2001:db8:1::1, "}},
		{name: "named", script: bgp, use: from("10.255.0.1")},
		{name: "no interface has it", script: bgp, use: from("10.255.0.1", "10.255.0.2"), want: []string{"problem masquerade-from: no interface has 10.255.0.2, which --masquerade-from names: it is left out"}},
		{name: "several networks", script: two},
	} {
		c.run(t)
	}
}

// 4.74: ranges of load balancers with addresses that are in use for something else.
func TestLoadBalancerRanges(t *testing.T) {
	const link = "ip link set lo up; ip link add dev a type veth peer name b; ip link set dev a up; ip link set dev b up; ip addr add 192.0.2.1/24 dev a; ip addr add 2001:db8::1/64 dev a nodad; ip addr add 203.0.113.20/32 dev a; ip route add default dev a; "
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, p := range texts {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	of := func(balancers ...string) machine.Use {
		return machine.Use{Endpoints: endpoints("192.0.2.9", "2001:db8::9", "198.51.100.9"), PodRanges: pods,
			Ranges: machine.Ranges{LoadBalancers: prefixes(balancers...), Services: prefixes("10.96.0.0/12"), Pods: prefixes("172.16.1.0/24")}}
	}
	const is = "warning load-balancer-ranges: "
	for _, c := range []condition{
		{name: "addresses of their own", script: link, use: of("203.0.113.0/24", "192.0.2.240/28", "2001:db8:1::/64")},
		{name: "of nodes, and of an endpoint", script: link, use: of("192.0.2.0/29", "2001:db8::/112", "198.51.100.0/24"), want: []string{
			is + "198.51.100.0/24 of --load-balancer-cidrs has the endpoint 198.51.100.9: packets that are sent to it directly are dropped"}},
		{name: "of pods", script: link, use: of("172.16.0.0/12", "10.128.0.0/16"), want: []string{
			is + "172.16.0.0/12 of --load-balancer-cidrs has addresses of pods (172.16.1.0/24): packets to them are dropped",
			is + "10.128.0.0/16 of --load-balancer-cidrs has addresses of pods ("}},
		{name: "of Services", script: link, use: of("10.100.0.0/16"), want: []string{
			is + "10.100.0.0/16 of --load-balancer-cidrs overlaps the service CIDR 10.96.0.0/12"}},
	} {
		c.run(t)
	}
}

// TestFilters loads filters on the hook forward (11.20).
func TestFilters(t *testing.T) {
	const dropDocker = `iptables-nft -P FORWARD DROP; iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER
		iptables-nft -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		iptables-nft -A FORWARD -i docker0 ! -o docker0 -j ACCEPT; iptables-nft -A DOCKER-USER -j RETURN; `
	const dropUFW = `iptables-nft -P FORWARD DROP; iptables-nft -N ufw-before-forward; iptables-nft -N ufw-user-forward; iptables-nft -A FORWARD -j ufw-before-forward
		iptables-nft -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		iptables-nft -A ufw-before-forward -p icmp --icmp-type 3 -j ACCEPT; iptables-nft -A ufw-before-forward -j ufw-user-forward; `
	for _, c := range []condition{
		{name: "iptables drops", script: "iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP", want: []string{
			"problem forward-filter: chain ip filter FORWARD drops forwarded connections, and no rule accepts those to endpoints",
			"problem forward-filter: chain ip6 filter FORWARD drops"}},
		{name: "iptables accepts translated connections", script: "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT"},
		{name: "iptables accepts pods", script: "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -d 10.128.0.0/9 -j ACCEPT", use: machine.Use{PodRanges: pods}},
		{name: "iptables accepts some pods", script: "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -d 10.128.3.0/24 -j ACCEPT", use: machine.Use{PodRanges: pods},
			want: []string{"warning forward-filter: chain ip filter FORWARD drops forwarded connections that no rule accepts; whether"}},
		{name: "iptables accepts others", script: "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -d 10.1.0.0/16 -j ACCEPT", use: machine.Use{PodRanges: pods},
			want: []string{"problem forward-filter: chain ip filter FORWARD"}},
		{name: "iptables accepts something", script: "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -m mark --mark 1 -j ACCEPT",
			want: []string{"warning forward-filter: chain ip filter FORWARD"}},
		{name: "the last rule rejects", script: "iptables-nft -A FORWARD -m comment --comment last -j REJECT", want: []string{
			"problem forward-filter: chain ip filter FORWARD"}},
		{name: "drops, endpoints on this machine", script: "iptables-nft -P FORWARD DROP", use: machine.Use{Endpoints: endpoints("127.0.0.1")}},
		{name: "Docker", script: dropDocker, want: []string{"problem forward-filter: chain ip filter FORWARD drops"}},
		{name: "Docker, pods accepted", script: dropDocker + "iptables-nft -I DOCKER-USER -d 10.128.0.0/16 -j ACCEPT", use: machine.Use{PodRanges: pods}},
		{name: "ufw", script: dropUFW, want: []string{"problem forward-filter: chain ip filter FORWARD drops"}},
		{name: "ufw, pods accepted", script: dropUFW + "iptables-nft -A ufw-user-forward -d 10.128.0.0/16 -j ACCEPT", use: machine.Use{PodRanges: pods}},
		{name: "only kube-proxy accepts", script: "iptables-nft -P FORWARD DROP; iptables-nft -N KUBE-FORWARD; iptables-nft -A FORWARD -j KUBE-FORWARD; iptables-nft -A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
			use: machine.Use{Cluster: true}, want: []string{
				"problem forward-filter: chain ip filter FORWARD drops forwarded connections, and only kube-proxy's chain KUBE-FORWARD accepts",
				"warning kube-proxy-rules: rules of kube-proxy: chains KUBE-* in table ip filter"}},
		{name: "nftables drops", script: "nft 'table inet f { chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; iifname lo accept; meta l4proto icmp accept; }; }'",
			want: []string{"problem forward-filter: chain inet f forward"}},
		{name: "nftables drops with a set and a map of states", script: "nft 'table inet f { chain forward { type filter hook forward priority 0; policy drop; ct state { established, related } accept; ct state vmap { established : accept, invalid : drop }; }; }'",
			want: []string{"problem forward-filter: chain inet f forward"}},
		{name: "nftables drops floods", script: "nft 'table inet f { set s { type ipv4_addr; size 9; flags dynamic; }; chain forward { type filter hook forward priority 0; add @s { ip saddr limit rate over 9/second } drop; limit rate over 9/second drop; }; }'"},
		{name: "nftables accepts a set of addresses", script: "nft 'table inet f { set s { type ipv4_addr; }; chain forward { type filter hook forward priority 0; policy drop; ip daddr @s accept; ip6 daddr fd00:10:128::/48 accept; }; }'",
			use: machine.Use{PodRanges: pods}, want: []string{"warning forward-filter: IPv4: chain inet f forward drops"}},
		{name: "many chains", script: `(echo '*filter'; for i in $(seq 320); do echo ":c$i - [0:0]"; done; for i in $(seq 320); do echo "-A FORWARD -p tcp --dport $i -j c$i"; done; echo COMMIT) | iptables-nft-restore --noflush; iptables-nft -P FORWARD DROP`,
			want: []string{"warning forward-filter: chain ip filter FORWARD"}},
		{name: "nftables accepts new connections", script: "nft 'table inet f { chain forward { type filter hook forward priority 0; policy drop; ct state { established, new } accept; }; }'"},
		{name: "nftables accepts translated connections", script: "nft 'table inet f { chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; ct status dnat accept; }; }'"},
		{name: "nftables accepts pods of IPv6", script: "nft 'table ip6 f { chain forward { type filter hook forward priority 0; policy drop; ip6 daddr fd00:10:128::/48 accept; }; }'",
			use: machine.Use{PodRanges: pods}},
		{name: "nftables accepts pods of both families", script: "nft 'table inet f { chain forward { type filter hook forward priority 0; policy drop; ip daddr 10.128.0.0/16 accept; ip6 daddr fd00:10:128::/48 accept; }; }'",
			use: machine.Use{PodRanges: pods}},
		{name: "nftables accepts pods of one family", script: "nft 'table inet f { chain forward { type filter hook forward priority 0; policy drop; ip daddr 10.128.0.0/16 accept; meta nfproto ipv6 meta l4proto icmpv6 accept; }; }'",
			use: machine.Use{PodRanges: pods}, want: []string{"problem forward-filter: IPv6: chain inet f forward drops"}},
		{name: "firewalld", script: `nft 'table inet firewalld { chain policies { ct mark 7 accept; }; chain filter_FORWARD { type filter hook forward priority 10; ct state { established, related } accept; ct status dnat accept; iifname "lo" accept; jump policies; reject with icmpx admin-prohibited; }; }'`},
		{name: "firewalld, strict", script: `nft 'table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; ct state { established, related } accept; iifname "lo" accept; reject with icmpx admin-prohibited; }; }'`,
			want: []string{"problem forward-filter: chain inet firewalld filter_FORWARD"}},

		{name: "iptables-legacy drops", script: "iptables-legacy -w -P FORWARD DROP; ip6tables-legacy -w -P FORWARD DROP; ip6tables-legacy -w -A FORWARD -d fd00:10:128::/48 -j ACCEPT", want: []string{
			"problem forward-filter-legacy: chain FORWARD of iptables-legacy drops forwarded connections, and has no rules",
			"warning forward-filter-legacy: chain FORWARD of ip6tables-legacy drops forwarded connections that no rule accepts"}},
		{name: "iptables-legacy accepts", script: "iptables-legacy -w -A FORWARD -s 192.0.2.1 -j DROP"},
	} {
		c.run(t)
	}
}

// TestOtherPrograms makes what other programs leave on a machine (11.20).
func TestOtherPrograms(t *testing.T) {
	for _, c := range []condition{
		{name: "earlier nat chain", script: "nft 'table ip other { chain first { type nat hook prerouting priority -110; ip daddr 10.96.0.10 dnat to 192.0.2.1; }; }'", want: []string{
			"warning nat-chains: chain ip other first has priority -110 and comes before nftproxy (-101)"}},
		{name: "later nat chain", script: "nft 'table ip other { chain first { type nat hook prerouting priority -100; ip daddr 10.96.0.10 dnat to 192.0.2.1; }; }'"},
		{name: "earlier nat chain without rules", script: "nft 'table ip other { chain first { type nat hook prerouting priority -110; }; }'"},
		{name: "untracked packets", script: "iptables-nft -t raw -A PREROUTING -d 192.0.2.1 -j CT --notrack; nft 'table inet r { chain output { type filter hook output priority raw; notrack; }; }'", want: []string{
			"warning notrack: chain ip raw PREROUTING, chain inet r output exempts packets from connection tracking"}},
		{name: "NodeLocal DNSCache", script: "ip link add dev nodelocaldns type bridge; iptables-nft -t raw -A PREROUTING -d 169.254.20.10 -j NOTRACK"},

		{name: "kube-proxy, nftables", script: "nft 'table ip kube-proxy { chain services { }; }'", want: []string{
			"warning kube-proxy-rules: rules of kube-proxy: table ip kube-proxy"}},
		{name: "kube-proxy, replaced", script: "nft 'table ip kube-proxy { chain served-by-nftproxy { }; }'"},
		{name: "kube-proxy, iptables", script: "iptables-nft -t nat -N KUBE-SERVICES; iptables-legacy -w -t nat -N KUBE-SVC-WEB", want: []string{
			"warning kube-proxy-rules: rules of kube-proxy: chains KUBE-* in table ip nat, chains KUBE-* in iptables-legacy table ip nat"}},
		{name: "kube-proxy, IPVS", script: "ip link add dev kube-ipvs0 type bridge", want: []string{
			"warning kube-proxy-rules: rules of kube-proxy: interface kube-ipvs0 (IPVS)"}},
		{name: "beside kube-proxy", script: "nft 'table ip kube-proxy { chain services { }; }'", use: machine.Use{Cluster: true, BesideAnother: true}},
		{name: "kube-router", script: "ip link add dev kube-dummy-if type bridge", want: []string{"problem other-proxies: kube-router"}},
		{name: "Calico's eBPF", script: "ip link add dev bpfin.cali type bridge; ip link set bpfin.cali up", want: []string{"problem other-proxies: Calico's eBPF"}},
		{name: "Cilium", script: "ip link add dev cilium_host type bridge; ip link set cilium_host up", want: []string{"warning other-proxies: Cilium"}},
	} {
		c.run(t)
	}
}

// TestNeighbours recognises programs by their rules.
func TestNeighbours(t *testing.T) {
	n := newNode(t)
	n.run(`iptables-nft -N DOCKER-USER; iptables-nft -N ufw-user-input; iptables-nft -t nat -N CNI-HOSTPORT-DNAT; iptables-nft -t nat -N ISTIO_OUTPUT
		iptables-nft -N cali-FORWARD; iptables-nft -N FLANNEL-FWD; iptables-nft -N ts-forward
		nft 'table inet netavark { chain INPUT { }; }; table inet firewalld { chain a { }; }; table inet kindnet { chain a { }; }'
		ip link set lo up; ip addr add 169.254.20.10/32 dev lo`)
	var want []string
	for _, name := range []string{"Docker", "Podman", "firewalld", "ufw", "NodeLocal DNSCache", "host ports of CNI plugins", "Istio", "Calico", "flannel", "kindnet", "Tailscale"} {
		want = append(want, "ok neighbours: "+name+" is here")
	}
	matches(t, n.check(machine.Use{}, "neighbours"), want)
}

// TestChangesNothing: the check creates no table of iptables-legacy, and does not change
// the rules.
func TestChangesNothing(t *testing.T) {
	n := newNode(t)
	before, err := n.Generation()
	if err != nil {
		t.Fatal(err)
	}
	matches(t, n.check(machine.Use{}), nil)
	n.run(`test -z "$(cat /proc/net/ip_tables_names /proc/net/ip6_tables_names)"; test -z "$(nft list ruleset)"`)
	if after, err := n.Generation(); err != nil || after != before {
		t.Errorf("generation is %d and was %d, %v", after, before, err)
	}
}

// TestProcesses finds kube-proxy in the same network namespace only.
func TestProcesses(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.Symlink(program, path); err != nil {
		t.Fatal(err)
	}
	here, elsewhere := newNode(t), newNode(t)
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), waiting+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := here.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	t.Cleanup(func() { stdin.Close() })
	found := func(n *node, u machine.Use) (out string) {
		_ = n.Do(func() error {
			for _, f := range machine.Check(machine.Read(), u) {
				if strings.Contains(f.Message, fmt.Sprintf("process %d ", cmd.Process.Pid)) {
					out = f.Level.String()
				}
			}
			return nil
		})
		return out
	}
	netlab.Eventually(t, time.Minute, func() error {
		if got := found(here, machine.Use{}); got != "warning" {
			return fmt.Errorf("kube-proxy is %q", got)
		}
		return nil
	})
	if got := found(elsewhere, machine.Use{}); got != "" {
		t.Errorf("in another namespace: %s", got)
	}
	if got := found(here, machine.Use{BesideAnother: true}); got != "ok" {
		t.Errorf("beside kube-proxy: %s", got)
	}
	stdin.Close()
	netlab.Eventually(t, time.Minute, func() error { // it is a zombie: nothing has waited for it
		if got := found(here, machine.Use{}); got != "" {
			return fmt.Errorf("kube-proxy has ended: %s", got)
		}
		return nil
	})
}

// TestForwardFilters: 17.12. What may drop forwarded connections of a family is named, first what drops all that no rule
// accepts; not what does not concern new connections to endpoints, or comes behind a rule that accepts them.
func TestForwardFilters(t *testing.T) {
	const table = "nft 'table inet f { "
	forward := func(policy, rules string) string {
		return table + "chain forward { type filter hook forward priority 0; policy " + policy + "; " + rules + "; }; }'"
	}
	for _, c := range []struct {
		name, script string
		v4, v6       []string
	}{
		{name: "nothing", script: "true"},
		{name: "policy", script: forward("drop", "ct state established accept"), v4: []string{"the policy of chain inet f forward"}, v6: []string{"the policy of chain inet f forward"}},
		{name: "policy of a family", script: forward("drop", "meta nfproto ipv6 accept"), v4: []string{"the policy of chain inet f forward"}},
		{name: "accepted", script: forward("drop", "ct state invalid drop; ct status dnat accept; tcp dport 8080 drop")},
		{name: "perhaps accepted", script: forward("drop", "meta mark 1 accept"), v4: []string{"the policy of chain inet f forward"}, v6: []string{"the policy of chain inet f forward"}},
		{name: "rules", script: forward("accept", "ct state invalid drop; iifname docker0 drop; tcp dport 8080 drop; ip daddr 10.128.0.0/16 reject"),
			v4: []string{"rule 3 of chain inet f forward", "rule 4 of chain inet f forward"}, v6: []string{"rule 3 of chain inet f forward"}},
		{name: "the last rule", script: table + "chain last { reject; }; chain forward { type filter hook forward priority 0; jump last; }; }'",
			v4: []string{"rule 1 of chain inet f last"}, v6: []string{"rule 1 of chain inet f last"}},
		{name: "policy, then rules", script: "nft 'table ip a { chain forward { type filter hook forward priority 0; tcp dport 8080 drop; }; }'; iptables-nft -P FORWARD DROP; iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER; iptables-nft -A DOCKER-USER -s 192.0.2.1 -j DROP",
			v4: []string{"the policy of chain ip filter FORWARD", "rule 1 of chain ip a forward", "rule 1 of chain ip filter DOCKER-USER (Docker)"}},
		{name: "iptables-legacy", script: "ip6tables-legacy -P FORWARD DROP", v6: []string{"the policy of chain FORWARD of ip6tables-legacy"}},
		{name: "other hooks", script: "nft 'table inet f { chain input { type filter hook input priority 0; policy drop; }; }'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.run(c.script)
			m := &machine.Monitor{Node: machine.Used{}, Log: slog.New(slog.DiscardHandler)}
			_ = n.Do(func() error {
				for f, want := range map[model.Family][]string{model.IPv4: c.v4, model.IPv6: c.v6} {
					if got := m.Filters(f); !slices.Equal(got, want) {
						t.Errorf("%s: %q, want %q", f, got, want)
					}
				}
				return nil
			})
		})
	}
}
