package neighbours

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// routed announces addresses to a router. MetalLB's own BGP has no IPv6.
const routed = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: pool, namespace: metallb-system}
spec: {addresses: [203.0.113.0/28]}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: pool, namespace: metallb-system}
spec: {ipAddressPools: [pool]}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: router, namespace: metallb-system}
spec: {myASN: 64513, peerASN: 64512, peerAddress: 192.0.2.3, holdTime: 3s}
`

// The router spreads connections over all nodes that announce the address.
func TestMetalLBRouted(t *testing.T) {
	finds(t, metallbFinding(t, "BGP (native mode, with BIRD and equal-cost paths): external traffic policies Cluster and Local, "+
		"restarts of nftproxy under load (0 requests lost), loss of a node"))
	b, _ := newRouted(t)
	s := b.createBalanced(singleStack("cluster"), corev1.ServiceExternalTrafficPolicyCluster)
	l := b.createBalanced(singleStack("local"), corev1.ServiceExternalTrafficPolicyLocal)
	pods := b.pods()
	for _, endpoints := range [][]*netlab.Host{pods[:2], pods[1:]} {
		b.SetEndpoints(s.Service, endpoints...)
		b.SetEndpoints(l.Service, endpoints...)
		b.balancedOver(s, endpoints...)
		b.balancedOver(l, endpoints...)
		b.healthChecks(l, endpoints)
		b.keepsSource(l)
	}
	b.restarts(s)
	b.restarts(l)

	gone := b.members[1]
	gone.speaker.Kill()
	b.cut(gone)
	b.SetEndpoints(s.Service, pods[2])
	b.SetEndpoints(l.Service, pods[2])
	b.balancedOver(s, pods[2])
	b.balancedOver(l, pods[2])
}

// A packet for a port that the Service does not have is none of nftproxy's
// business: the node routes it, and its default route leads to the router.
func TestMetalLBRoutedOtherPorts(t *testing.T) {
	f := metallbFinding(t, "BGP: ports of an address that no Service has")
	f.Verdict, f.Note = worksIf, "nodes have a rule such as `ip rule add iif UPLINK to POOL prohibit`. Without it, packets to such ports "+
		"go back and forth between node and router until their TTL ends."
	finds(t, f)
	b, router := newRouted(t)
	s := b.createBalanced(singleStack("web"), corev1.ServiceExternalTrafficPolicyCluster)
	b.SetEndpoints(s.Service, b.pods()...)
	b.balancedOver(s, b.pods()...)
	if n := b.expired(s, router); n == 0 {
		t.Error("no packet went back and forth")
	}
	for _, m := range b.members {
		if err := m.Do(prohibit); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.expired(s, router); n != 0 {
		t.Errorf("the TTL of %d packets has ended", n)
	}
	b.balancedOver(s, b.pods()...)
}

func singleStack(name string) *corev1.Service {
	s := testbed.DualStack(name)
	s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	return s
}

// newRouted makes a cluster whose client is behind a router.
func newRouted(t *testing.T) (*balanced, *netlab.Host) {
	t.Helper()
	b := newBalanced(t, 3, routed)
	router, err := b.sw.AddRouter("router", 3)
	if err != nil {
		t.Fatal(err)
	}
	b.outside, err = router.AddPod("outside", netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:51::/64"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.outside.Close() })
	for _, m := range b.members {
		for _, to := range []struct {
			prefix  string
			gateway netip.Addr
		}{{"0.0.0.0/0", router.IPv4}, {"2001:db8:51::/64", router.IPv6}} {
			if err := m.AddRoute(netip.MustParsePrefix(to.prefix), to.gateway); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.startBIRD(router)
	return b, router
}

// startBIRD starts the router's BGP. The kernel chooses a path by addresses and
// ports.
func (b *balanced) startBIRD(router *netlab.Host) {
	b.T.Helper()
	err := router.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0)
	})
	if err != nil {
		b.T.Fatal(err)
	}
	config := fmt.Sprintf("router id %s;\nprotocol device {}\nprotocol kernel { merge paths on; ipv4 { export all; import none; }; }\n", router.IPv4)
	for i, m := range b.members {
		config += fmt.Sprintf("protocol bgp node%d { local as 64512; neighbor %s as 64513; ipv4 { import all; export none; }; }\n", i, m.IPv4)
	}
	file := filepath.Join(b.Dir, "bird.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		b.T.Fatal(err)
	}
	testbed.StartCommand(b.T, router, "bird", exec.Command("bird", "-f", "-c", file,
		"-s", filepath.Join(b.Dir, "bird.ctl"), "-P", filepath.Join(b.Dir, "bird.pid")))
}

// keepsSource checks that endpoints see the client's address, on whichever node.
func (b *balanced) keepsSource(s published) {
	b.T.Helper()
	for _, to := range s.targets {
		for range 8 {
			answer, err := b.outside.Ask(to.Network, to.To, testbed.Strict)
			if err != nil || answer.Client != b.outside.Address(to.Family) {
				b.T.Errorf("%s: got %v, %v, want an answer to the client's address", to, answer, err)
			}
		}
	}
}

// expired asks at ports that the Service does not have, and returns how many
// times routers said since then that the TTL of a packet has ended.
func (b *balanced) expired(s published, router *netlab.Host) (n int) {
	b.T.Helper()
	routers := []*netlab.Host{router}
	for _, m := range b.members {
		routers = append(routers, m.Host)
	}
	for _, r := range routers {
		n -= b.timeExceeded(r)
	}
	b.otherPorts(s)
	for _, r := range routers {
		n += b.timeExceeded(r)
	}
	return n
}

// timeExceeded returns how many ICMP messages "time exceeded" a host has sent.
func (b *balanced) timeExceeded(h *netlab.Host) (n int) {
	b.T.Helper()
	var table []byte
	err := h.Do(func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	if err != nil {
		b.T.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if fields[0] != "Icmp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "OutTimeExcds" {
				if _, err := fmt.Sscan(fields[i], &n); err != nil {
					b.T.Fatal(err)
				}
			}
		}
	}
	return n
}

// prohibit refuses what still has an address of the pool when the node routes it.
func prohibit() error {
	rule := netlink.NewRule()
	rule.IifName, rule.Type, rule.Family = "uplink", unix.RTN_PROHIBIT, unix.AF_INET
	rule.Dst = &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(28, 32)}
	return netlink.RuleAdd(rule)
}
