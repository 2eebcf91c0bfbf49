package test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// diversion is a nat table of another program that translates all connections to some
// frontends before nftproxy does, and sends them to a pod.
func diversion(priority int, to *netlab.Host, frontends ...netip.AddrPort) string {
	var b strings.Builder
	for _, f := range model.Families {
		keyword := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f]
		var rules strings.Builder
		for _, frontend := range frontends {
			if model.FamilyOf(frontend.Addr()) == f {
				fmt.Fprintf(&rules, "%s daddr %s meta l4proto { tcp, udp } th dport %d dnat to %s;", keyword, frontend.Addr(), frontend.Port(), endpointOf(to, f))
			}
		}
		for _, hook := range []string{"prerouting", "output"} {
			fmt.Fprintf(&b, "table %s diversion { chain %s { type nat hook %[2]s priority %d; %s }; }\n", keyword, hook, priority, rules.String())
		}
	}
	return b.String()
}

// 5.14: session affinity leaves alone what another program translates first, to whatever
// endpoint, also for clients that it has bound; these stay bound.
func TestAffinityLeavesOtherTranslations(t *testing.T) {
	for name, flags := range map[string][]string{
		"NodePorts on one address": nil,
		"NodePorts on all":         {"--nodeport-addresses", "0.0.0.0/0,::/0"},
	} {
		for _, policy := range []string{"Cluster", "Local"} {
			t.Run(name+", policy "+policy, func(t *testing.T) { affinityLeavesOtherTranslations(t, flags, policy) })
		}
	}
}

func affinityLeavesOtherTranslations(t *testing.T, flags []string, policy string) {
	c := newCluster(t, 4)
	c.flags = slices.Concat(clusterCIDR, flags)
	web := service{Name: "web", N: 1, Pods: c.Pods[:2], External: policy, Affinity: long}
	c.apply(web)
	crowd := c.crowd(6)
	clients := append(crowd[:4:4], c.Node, c.Pods[3])
	type flows struct {
		bindings
		network string
		to      netip.AddrPort
	}
	var all []flows
	var frontends []netip.AddrPort
	for _, family := range model.Families {
		for _, to := range web.frontends(c.Node, family) {
			frontends = append(frontends, to)
			for _, network := range []string{"tcp", "udp"} {
				all = append(all, flows{bind(t, clients, network, to), network, to})
			}
		}
	}
	other := c.Pods[2]
	late := append(crowd[4:], c.Pods[0])                     // clients that are not bound
	for _, priority := range []int{-150, nftproxyPriority} { // of equal ones, the newest comes first
		c.nftLoad(diversion(priority, other, frontends...))
		for _, f := range all {
			for _, client := range slices.Concat(clients, late) {
				if got, err := client.Ask(f.network, f.to, 0); err != nil || got.Name != other.Name {
					t.Errorf("priority %d: from %s to %s %s: got %s, %v, want an answer of %s", priority, client.Name, f.network, f.to, got.Name, err, other.Name)
				}
			}
		}
		c.nft("delete", "table", "ip", "diversion")
		c.nft("delete", "table", "ip6", "diversion")
	}
	for _, f := range all {
		f.hold(t, "the other program has ended", f.network, f.to)
	}
}

// nftproxyPriority is the priority of the chains that translate destinations.
const nftproxyPriority = -101

// 5.14: a program that translates some of the connections of a client and leaves the
// others gets its share, and the others stay with their endpoint.
func TestAffinityBesideCanary(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods[:2], Affinity: long}
	c.apply(web)
	to := web.clusterIP(model.IPv4)
	first := ask(t, c.Client, "udp", to).Name
	c.nftLoad(fmt.Sprintf(`table ip canary { chain pre { type nat hook prerouting priority -150;
		ip daddr %s udp dport %d numgen inc mod 2 0 dnat to %s; }; }`, to.Addr(), to.Port(), endpointOf(c.Pods[2], model.IPv4)))
	count := make(map[string]int)
	for range 40 {
		count[ask(t, c.Client, "udp", to).Name]++
	}
	if count[first] != 20 || count[c.Pods[2].Name] != 20 {
		t.Errorf("answers: %v, want 20 of %s and 20 of %s", count, first, c.Pods[2].Name)
	}
}
