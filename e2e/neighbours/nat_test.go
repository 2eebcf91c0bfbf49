package neighbours

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// theirs is an address that another program serves.
func theirs(f model.Family) netip.AddrPort {
	return netip.MustParseAddrPort(map[model.Family]string{model.IPv4: "203.0.113.5:80", model.IPv6: "[2001:db8:5::5]:80"}[f])
}

// theirsInCIDR is one within the range of ClusterIPs.
func theirsInCIDR(f model.Family) netip.AddrPort {
	return netip.MustParseAddrPort(map[model.Family]string{model.IPv4: "10.96.0.77:80", model.IPv6: "[fd00:10:96::77]:80"}[f])
}

// translate returns the table of a program that directs frontends to a pod, with
// chains at a distance from the usual priorities, and masquerades what other
// clients than pods send to pods.
func translate(distance int, pod *netlab.Host, frontends ...func(model.Family) netip.AddrPort) string {
	var rules string
	for _, to := range frontends {
		for f, ip := range map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"} {
			rules += fmt.Sprintf("meta l4proto { tcp, udp } %s daddr %s th dport %d dnat %s to %s\n",
				ip, to(f).Addr(), to(f).Port(), ip, netip.AddrPortFrom(pod.Address(f), 8080))
		}
	}
	return fmt.Sprintf(`table inet neighbour
delete table inet neighbour
table inet neighbour {
	chain prerouting { type nat hook prerouting priority %[1]d
%[4]s	}
	chain output { type nat hook output priority %[1]d
%[4]s	}
	chain postrouting { type nat hook postrouting priority %[2]d
		ip saddr != %[3]s ip daddr %[3]s masquerade
		ip6 saddr != %[5]s ip6 daddr %[5]s masquerade
	}
}
`, -100+distance, 100+distance, netlab.ClusterCIDRv4, rules, netlab.ClusterCIDRv6)
}

// waysTo returns the ways of all kinds of clients to a frontend.
func (h *host) waysTo(name string, to func(model.Family) netip.AddrPort) []path {
	return []path{{"outside to " + name, h.Client, to}, {"pod to " + name, h.Pods[1], to}, {"node to " + name, h.Node, to}}
}

// Another program serves addresses of its own beside Services, whether its chains
// come before nftproxy's or after them, and whether it starts before or after.
func TestNATOfOtherAddresses(t *testing.T) {
	for _, distance := range []int{-5, 0, 5} {
		t.Run(fmt.Sprintf("priority %+d", distance), func(t *testing.T) {
			finds(t, finding{Group: "Rules of other programs", Neighbour: "nat chains", Verdict: works,
				Case: fmt.Sprintf("another program translates other addresses at the priorities dstnat%+d and srcnat%+[1]d, "+
					"also in the range of ClusterIPs, and replaces its rules under load", distance)})
			inEitherOrder(t, func(h *host, start func(func())) {
				h.echo(h.Pods[2])
				table := translate(distance, h.Pods[2], theirs, theirsInCIDR)
				start(func() { h.load(table) })
				served := func(when string) {
					h.t.Helper()
					h.answers(when, h.Pods[2].Name, h.waysTo("their address", theirs)...)
					h.answers(when, h.Pods[2].Name, h.waysTo("their address in the service CIDR", theirsInCIDR)...)
				}
				served("at the start")
				h.undisturbed("rules are replaced", func() { h.load(table) }, h.paths()...)
				h.uninterrupted("rules are replaced again and again", func() {
					for range 20 {
						h.load(table)
					}
				}, h.paths()...)
				served("at the end")
			})
		})
	}
}

// If both translate one address, the chain with the lower priority does.
func TestNATOfSameAddress(t *testing.T) {
	note := "nftproxy's chains are at dstnat-1: the Service answers, in either order of start."
	for _, c := range []struct {
		distance int
		verdict  verdict
		note     string
	}{
		{-5, fails, "because the chain before nftproxy's, at a priority below dstnat-1, decides: the other program answers."},
		{0, works, note}, {5, works, note},
	} {
		t.Run(fmt.Sprintf("priority %+d", c.distance), func(t *testing.T) {
			finds(t, finding{Group: "Rules of other programs", Neighbour: "nat chains", Verdict: c.verdict, Note: c.note,
				Case: fmt.Sprintf("another program translates the address and port of a Service at the priority dstnat%+d", c.distance)})
			inEitherOrder(t, func(h *host, start func(func())) {
				h.echo(h.Pods[2])
				start(func() { h.load(translate(c.distance, h.Pods[2], clusterIP)) })
				if c.verdict == works {
					h.served("both serve", h.waysTo("ClusterIP", clusterIP)...)
				} else {
					h.answers("both serve", h.Pods[2].Name, h.waysTo("ClusterIP", clusterIP)...)
				}
				h.served("NodePort", h.waysTo("NodePort", h.nodePort)...)
			})
		})
	}
}
