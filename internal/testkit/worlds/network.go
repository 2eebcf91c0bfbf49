package worlds

import (
	"fmt"
	"net/netip"
)

// Host is a sender and, if it is a pod, a server.
type Host struct {
	Name       string
	Device     string // of the node, that its packets arrive on; empty: it is the node
	IPv4, IPv6 netip.Addr
}

// Address returns the address of the family that another address is of.
func (h Host) Address(like netip.Addr) netip.Addr {
	if like.Is6() {
		return h.IPv6
	}
	return h.IPv4
}

// addresses returns both.
func (h Host) addresses() []netip.Addr { return []netip.Addr{h.IPv4, h.IPv6} }

// NodeName is the name of the node.
const NodeName = "node-1"

// Hosts of every world. The addresses are those of the laboratory of package netlab.
var (
	Node    = Host{"node", "", netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	Client  = Host{"client", "uplink", netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}
	Pods    = []Host{pod(0), pod(1), pod(2), pod(3)}
	gateway = Host{"gateway", "", netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("fd00:10:128::1")}
	// absent has addresses at which no host is.
	absent = Host{"absent", "", netip.MustParseAddr("10.128.0.9"), netip.MustParseAddr("fd00:10:128::9")}
)

func pod(i int) Host {
	name := fmt.Sprintf("pod-%d", i)
	return Host{name, name, netip.AddrFrom4([4]byte{10, 128, 0, byte(i + 2)}), netip.MustParseAddr(fmt.Sprintf("fd00:10:128::%x", i+2))}
}

// IsNode reports whether an address is one of the node.
func IsNode(a netip.Addr) bool {
	return a == Node.Address(a) || a == gateway.Address(a)
}

// PodWith returns the pod with an address.
func PodWith(a netip.Addr) (Host, bool) {
	for _, p := range Pods {
		if p.Address(a) == a {
			return p, true
		}
	}
	return Host{}, false
}

// ServerPorts returns the ports on which all pods answer, by TCP and UDP.
func ServerPorts() []uint16 {
	ports := []uint16{8080, 8081, 5000}
	for p := uint16(9000); p < 9020; p++ {
		ports = append(ports, p)
	}
	return ports
}

// Addresses outside of the cluster that Services and Balances compete for.
var (
	outside4 = []string{"203.0.113.10", "203.0.113.11", "203.0.113.12", "203.0.113.13"}
	outside6 = []string{"2001:db8:2::10", "2001:db8:2::11", "2001:db8:2::12", "2001:db8:2::13"}
)

// clients are lists of clients that may connect, or may not.
var clients = []string{"10.0.0.0/8", "192.0.0.0/16", "192.0.2.2", "192.0.2.0/24", "0.0.0.0/0", "::/0", "fd00::/8",
	"2001:db8::/64", "203.0.113.0/24", "10.128.0.4", "172.16.0.0/12", "2001:db8::2", "192.0.2.1"}
