package neighbours

import (
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

const cniGroup = "Network plugins"

// Both build links between the node and its pods; ipMasq masquerades what leaves
// a pod for anything but its own network.
func TestBridgeAndPTP(t *testing.T) {
	forEachPlugins(t, func(t *testing.T, p plugins) {
		for _, c := range []struct {
			kind, tried string
			settings    plugin
			since       string // the builds that know the settings; empty: all
		}{
			{"bridge", "hairpinMode", plugin{"hairpinMode": true}, ""},
			{"bridge", "hairpinMode, ipMasq", plugin{"hairpinMode": true, "ipMasq": true}, ""},
			{"bridge", "hairpinMode, ipMasq with nftables", plugin{"hairpinMode": true, "ipMasq": true, "ipMasqBackend": "nftables"}, pinned},
			{"ptp", "without ipMasq", plugin{}, ""},
			{"ptp", "ipMasq", plugin{"ipMasq": true}, ""},
			{"ptp", "ipMasq with nftables", plugin{"ipMasq": true, "ipMasqBackend": "nftables"}, pinned},
		} {
			if c.since != "" && c.since != p.name {
				continue
			}
			t.Run(c.kind+" "+c.tried, func(t *testing.T) {
				n := newNodes(t, 2)
				n.addPods(p, func(on *node) []plugin { return []plugin{on.with(c.kind, c.settings)} })
				m := n.addMix()
				n.startProxies()
				m.works(n)
				// Pods that are added to and removed from a node with rules.
				node := n.all[0]
				node.configure(p, "DEL", node.addPod(p, node.with(c.kind, c.settings)), node.with(c.kind, c.settings))
				m.works(n)
				if c.settings["ipMasq"] == true {
					n.masqueraded()
				}
				finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin " + c.kind, Version: p.version, Case: c.tried, Verdict: works})
			})
		}
	})
}

// The bridge sends a pod's packets back to the pod in hairpin mode only. promiscMode
// does not help as long as the bridge hands packets to iptables: nat then changes their
// destination on the bridge, and not on their way through the node.
func TestBridgeWithoutHairpin(t *testing.T) {
	forEachPlugins(t, func(t *testing.T, p plugins) {
		for tried, settings := range map[string]plugin{"without hairpinMode": {}, "promiscMode": {"promiscMode": true}} {
			t.Run(tried, func(t *testing.T) {
				n, m := newBridgeNodes(t, p, settings)
				eventually(t, func() error {
					return testbed.WantSilence(n.all[0].pods[0], "tcp", m.itself.target("tcp", model.IPv4).To)
				})
				n.all[0].run("sh", "-c", `for link in $(ip -oneline link show master cni0 | cut -d: -f2 | cut -d@ -f1)
					do ip link set "$link" type bridge_slave hairpin on || exit; done`)
				m.works(n)
				finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin bridge", Version: p.version, Case: tried, Verdict: worksIf,
					Note: "`hairpinMode` is set; otherwise a pod does not reach itself through a Service"})
			})
		}
	})
}

// newBridgeNodes starts nodes whose pods are on bridges.
func newBridgeNodes(t *testing.T, p plugins, settings plugin) (*nodes, serviceMix) {
	t.Helper()
	n := newNodes(t, 2)
	n.addPods(p, func(on *node) []plugin { return []plugin{on.with("bridge", settings)} })
	m := n.addMix()
	n.startProxies()
	return n, m
}

// masqueraded checks that the plugin masquerades what leaves the cluster.
func (n *nodes) masqueraded() {
	n.t.Helper()
	node := n.all[0]
	forEachFlow(func(network string, f model.Family) {
		to := testbed.Target{Network: network, Family: f, To: addrPort(n.client.Address(f), testbed.EchoPort)}
		eventually(n.t, func() error {
			return asks("a pod, a server outside", node.pods[0], to, n.client.Name, addrs(node.Address(f)))
		})
	})
}
