package pair

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// clients is how many have flows of each kind, of each family.
const clients = 10

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// lab is two machines between two networks, front and back:
//
//	clients - router --+-- front --+-- a --+-- back --+-- server-1
//	                   |           |   |   |          +-- server-2
//	                   |           |  sync |          +-- server-3
//	                   |           |   |   |
//	                   |           +-- b --+
type lab struct {
	t       testing.TB
	wires   *netlab.Namespace // has the bridges of both networks
	router  *netlab.Host      // the clients are addresses of its own
	a, b    *machine
	servers []*netlab.Host
	clients []*netlab.Host
}

// virtual are the addresses that clients dial.
var virtual = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("192.0.2.10"), model.IPv6: netip.MustParseAddr("2001:db8:1::10")}

// newLab builds the networks, without programs.
func newLab(t testing.TB) *lab {
	t.Helper()
	netlab.SkipInUserNamespace(t, "keepalived")
	l := &lab{t: t, wires: netlab.TestNamespace(t)}
	l.wires.TestScript(l.t, "ip link add front type bridge && ip link add back type bridge && ip link set front up && ip link set back up")
	l.router = l.host("router", 1, "front")
	l.a, l.b = l.machine("a", 2), l.machine("b", 3)
	l.a.TestScript(l.t, `ip link add sync type veth peer name sync netns "$1"`, l.b.Path())
	for i, m := range []*machine{l.a, l.b} {
		m.TestScript(l.t, `ip address add "10.255.0.$1/24" dev sync && ip link set sync up`, fmt.Sprint(i+1))
	}
	for i := range 3 {
		s := l.host(fmt.Sprintf("server-%d", i+1), 11+i, "back")
		s.TestScript(l.t, "ip route add default via 10.1.0.1 && ip route add default via fd00:10:1::1")
		l.serve(s)
		l.servers = append(l.servers, s)
	}
	for i := range clients {
		c, err := l.router.Alias(netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:18::%x", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		l.clients = append(l.clients, c)
	}
	return l
}

// host makes a host with address n in networks.
func (l *lab) host(name string, n int, networks ...string) *netlab.Host {
	l.t.Helper()
	ns := netlab.TestNamespace(l.t)
	ns.TestScript(l.t, "ip link set lo up")
	h := &netlab.Host{Namespace: ns, Name: name}
	for _, network := range networks {
		a4, a6 := addresses(network, n)
		if h.IPv4 == (netip.Addr{}) {
			h.IPv4, h.IPv6 = a4, a6
		}
		l.wires.TestScript(l.t, `ip link add "$1-$2" type veth peer name "$2" netns "$3" && ip link set "$1-$2" master "$2" up`, name, network, ns.Path())
		ns.TestScript(l.t, `ip link set "$1" up && ip address add "$2/24" dev "$1" && ip address add "$3/64" dev "$1" nodad`, network, a4.String(), a6.String())
	}
	return h
}

func addresses(network string, n int) (v4, v6 netip.Addr) {
	if network == "front" {
		return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%d", n))
	}
	return netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), netip.MustParseAddr(fmt.Sprintf("fd00:10:1::%d", n))
}
