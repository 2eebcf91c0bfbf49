package neighbours

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Marks of other programs survive the translation, and have no effect on it.
func TestMarksOfOthers(t *testing.T) {
	for _, c := range []struct{ owner, mark string }{
		{"kubelet and kube-proxy", "0x0000c000"}, {"Calico", "0xffff0000"}, {"Cilium", "0x00000f00"},
		{"wg-quick", "0x0000ca6c"}, {"Tailscale", "0x000c0000"},
	} {
		t.Run(c.owner, func(t *testing.T) {
			finds(t, finding{Group: "VPNs and marks", Neighbour: "packet marks", Verdict: works,
				Case: fmt.Sprintf("all packets and connections have the mark %s (%s)", c.mark, c.owner)})
			inEitherOrder(t, func(h *host, start func(func())) {
				start(func() { h.load(markAll(c.mark)) })
				h.served("marked", h.paths()...)
				if n := h.counter("translated"); n == 0 {
					h.t.Error("no translated packet was seen")
				}
				if n := h.counter("changed"); n != 0 {
					h.t.Errorf("%d translated packets have another mark", n)
				}
				for _, f := range model.Families {
					answer, err := h.Pods[1].Ask("tcp", clusterIP(f), testbed.Strict)
					if err != nil || answer.Client != h.Pods[1].Address(f) {
						h.t.Errorf("a pod is seen as %v, %v, want %s: not masqueraded", answer, err, h.Pods[1].Address(f))
					}
				}
			})
		})
	}
}

// markAll sets the mark of all packets and connections, and counts translated
// packets that leave with another one.
func markAll(mark string) string {
	return fmt.Sprintf(`table inet neighbour {
	counter translated {}
	counter changed {}
	chain prerouting { type filter hook prerouting priority mangle; meta mark set %[1]s; ct mark set %[1]s; }
	chain output { type route hook output priority mangle; meta mark set %[1]s; ct mark set %[1]s; }
	chain postrouting { type filter hook postrouting priority 300
		ct status dnat counter name translated
		ct status dnat meta mark != %[1]s counter name changed
		ct status dnat ct mark != %[1]s counter name changed
	}
}
`, mark)
}

// counter returns the packets of a counter of the neighbour.
func (h *host) counter(name string) int {
	h.t.Helper()
	var packets int
	m := regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(h.run("nft", "list", "counter", "inet", "neighbour", name))
	if m == nil {
		h.t.Fatalf("counter %s has no number of packets", name)
	}
	fmt.Sscan(m[1], &packets)
	return packets
}

// wgQuick does what wg-quick does for AllowedIPs = 0.0.0.0/0, ::/0, with a tun
// interface in place of a wireguard one: everything goes through the tunnel,
// except what matches a route other than the default one and what has the mark.
func (h *host) wgQuick() {
	h.t.Helper()
	h.run("ip", "tuntap", "add", "wg0", "mode", "tun")
	h.run("ip", "link", "set", "wg0", "up")
	for _, family := range []string{"-4", "-6"} {
		h.run("ip", family, "route", "add", "default", "dev", "wg0", "table", "51820")
		h.run("ip", family, "rule", "add", "not", "fwmark", "51820", "table", "51820")
		h.run("ip", family, "rule", "add", "table", "main", "suppress_prefixlength", "0")
	}
	h.sysctl("net/ipv4/conf/all/src_valid_mark", "1")
	h.load(`table inet wg-quick-wg0 {
	chain premangle { type filter hook prerouting priority mangle; meta l4proto udp meta mark set ct mark; }
	chain postmangle { type filter hook postrouting priority mangle; meta l4proto udp meta mark 0xca6c ct mark set meta mark; }
}
`)
}

// answerWhereTheyCame marks connections from the uplink, so that their replies do
// not go through the tunnel.
const answerWhereTheyCame = `table inet uplink {
	chain prerouting { type filter hook prerouting priority mangle + 1
		iifname uplink ct state new ct mark set 0xca6c
		meta mark set ct mark
	}
	chain output { type route hook output priority mangle; ct mark 0xca6c meta mark set ct mark; }
}
`

// far returns a client beyond the default route of the node.
func (h *host) far() path {
	h.t.Helper()
	client, err := h.Client.Alias(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:18::1"))
	if err != nil {
		h.t.Fatal(err)
	}
	return path{"far client to NodePort", client, h.nodePort}
}

// A VPN takes the default route: replies to clients beyond it leave through the
// tunnel, whatever serves them.
func TestVPNWithDefaultRoute(t *testing.T) {
	finds(t, finding{Group: "VPNs and marks", Neighbour: "wg-quick", Verdict: worksIf,
		Case: "`AllowedIPs = 0.0.0.0/0, ::/0` (rules as wg-quick writes them, with a tun device; strict rp_filter)",
		Note: "clients of NodePorts are in networks that the node has routes to. For others, connections that arrive at the uplink must get " +
			"wg-quick's mark (0xca6c) and restore it for replies; nftproxy leaves marks alone."})
	inEitherOrder(t, func(h *host, start func(func())) {
		far := h.far()
		h.sysctl("net/ipv4/conf/all/rp_filter", "1")
		start(h.wgQuick)
		h.served("with the VPN", h.paths()...)
		h.unserved("with the VPN", far)
		h.undisturbed("replies are marked", func() { h.load(answerWhereTheyCame) }, h.paths()...)
		h.served("replies are marked", append(h.paths(), far)...)
	})
}

// tailscale writes Tailscale's rules, with the link of the client in place of the
// tunnel: what comes from there is marked and masqueraded, and the bits of the
// mark are saved and restored.
func (h *host) tailscale() {
	h.t.Helper()
	rules := []string{
		"-t mangle -A PREROUTING -m conntrack --ctstate ESTABLISHED,RELATED -j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000",
		"-t mangle -A OUTPUT -m conntrack --ctstate NEW -m mark ! --mark 0x0/0xff0000 -j CONNMARK --save-mark --nfmask 0xff0000 --ctmask 0xff0000",
		"-A FORWARD -i uplink -j MARK --set-xmark 0x40000/0xff0000",
		"-A FORWARD -m mark --mark 0x40000/0xff0000 -j ACCEPT",
		"-A FORWARD -o uplink -j ACCEPT",
		"-t nat -A POSTROUTING -m mark --mark 0x40000/0xff0000 -j MASQUERADE",
	}
	for family, command := range map[string]string{"-4": "iptables", "-6": "ip6tables"} {
		for _, rule := range rules {
			h.run(command, strings.Fields(rule)...)
		}
		for _, rule := range []string{"5210 fwmark 0x80000/0xff0000 table main", "5230 fwmark 0x80000/0xff0000 table default",
			"5250 fwmark 0x80000/0xff0000 type unreachable", "5270 table 52"} {
			h.run("ip", append([]string{family, "rule", "add", "pref"}, strings.Fields(rule)...)...)
		}
	}
}

func TestTailscaleRouter(t *testing.T) {
	finds(t, finding{Group: "VPNs and marks", Neighbour: "Tailscale", Verdict: works,
		Case: "a node that is a subnet router for ClusterIPs and pods (rules as Tailscale writes them, with another device)"})
	inEitherOrder(t, func(h *host, start func(func())) {
		start(h.tailscale)
		h.served("with the VPN", h.paths()...)
		for _, command := range []string{"iptables", "ip6tables"} {
			// The number of packets is the first field of a rule.
			if rule := strings.Fields(h.run(command, "-vnL", "FORWARD", "2")); rule[0] == "0" {
				h.t.Errorf("%s: no packet has the mark of the tunnel", command)
			}
		}
	})
}
