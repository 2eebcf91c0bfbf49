package neighbours

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const hostPort = 8081

// portmap returns the plugin that forwards a port of the node to the pod.
func portmap(port uint16, settings plugin) plugin {
	var mappings []map[string]any
	for _, protocol := range []string{"tcp", "udp"} {
		mappings = append(mappings, map[string]any{"hostPort": port, "containerPort": testbed.EchoPort, "protocol": protocol})
	}
	p := plugin{"type": "portmap", "snat": true, "runtimeConfig": map[string]any{"portMappings": mappings}}
	for key, value := range settings {
		p[key] = value
	}
	return p
}

// forEachPortmap runs a test with all builds and backends of portmap.
func forEachPortmap(t *testing.T, f func(t *testing.T, p plugins, backend string)) {
	forEachPlugins(t, func(t *testing.T, p plugins) {
		t.Run("iptables", func(t *testing.T) { f(t, p, "iptables") })
		if p.name == pinned {
			t.Run("nftables", func(t *testing.T) { f(t, p, "nftables") })
		}
	})
}

// newHostPort starts nodes the first of which has a pod with a host port, which is
// the pod that reaches itself and an endpoint of other Services as well.
func newHostPort(t *testing.T, p plugins, proxyFirst bool, mapping plugin) (*nodes, serviceMix) {
	t.Helper()
	n := newNodes(t, 2)
	first, second := n.all[0], n.all[1]
	bridge := plugin{"hairpinMode": true}
	n.routes()
	if proxyFirst {
		n.startProxies()
	}
	first.addPod(p, first.with("bridge", bridge), mapping)
	first.addPod(p, first.with("bridge", bridge))
	second.addPod(p, second.with("bridge", bridge))
	m := n.addMix()
	if proxyFirst {
		n.write()
	} else {
		n.startProxies()
	}
	m.works(n)
	return n, m
}

// Host ports and Services are served side by side, in either order of start.
func TestHostPort(t *testing.T) {
	forEachPortmap(t, func(t *testing.T, p plugins, backend string) {
		for _, proxyFirst := range []bool{false, true} {
			mapping := portmap(hostPort, plugin{"backend": backend})
			n, m := newHostPort(t, p, proxyFirst, mapping)
			first, second := n.all[0], n.all[1]
			pod := first.pods[0]
			reached := func() error {
				return n.reached(hostPort, pod, n.client, second.Host, second.pods[0], first.pods[1], pod)
			}
			eventually(t, reached)
			// The client's address is that of the client.
			eventually(t, func() error {
				return asks("a host port", n.client, testbed.Target{Network: "tcp", To: addrPort(first.IPv4, hostPort)}, pod.Name, addrs(n.client.IPv4))
			})
			first.configure(p, "DEL", pod, first.with("bridge", nil), mapping)
			eventually(t, func() error { return testbed.WantRefused(n.client, "tcp", addrPort(first.IPv4, hostPort)) })
			eventually(t, func() error {
				return asks("a client", n.client, m.other.nodePort(first, "tcp", model.IPv4), second.pods[0].Name, nil)
			})
		}
		finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin portmap", Version: p.version, Case: backend + ": host ports of a pod that is an endpoint", Verdict: works})
	})
}

// reached dials a host port of the first node, which the pod must answer.
func (n *nodes) reached(port uint16, pod *netlab.Host, clients ...*netlab.Host) error {
	var err error
	forEachFlow(func(network string, f model.Family) {
		for _, from := range clients {
			if err == nil {
				to := testbed.Target{Network: network, Family: f, To: addrPort(n.all[0].Address(f), port)}
				err = asks("host port, from "+from.Name, from, to, pod.Name, nil)
			}
		}
	})
	return err
}

// Where a pod asks for a host port with the number of a NodePort, the Service has it.
func TestHostPortOfANodePort(t *testing.T) {
	forEachPortmap(t, func(t *testing.T, p plugins, backend string) {
		for _, proxyFirst := range []bool{false, true} {
			n, m := newHostPort(t, p, proxyFirst, portmap(30011, plugin{"backend": backend}))
			if got := m.same.Spec.Ports[0].NodePort; got != 30011 {
				t.Fatalf("the NodePort is %d", got)
			}
			eventually(t, func() error { return n.reached(30011, n.all[0].pods[1], n.client, n.all[1].Host, n.all[1].pods[0]) })
		}
		finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin portmap", Version: p.version, Case: backend + ": a host port with the number of a NodePort",
			Verdict: works, Note: "(the NodePort is served, in either order of start)"})
	})
}

// Conditions restrict host ports, and not Services.
func TestHostPortWithConditions(t *testing.T) {
	forEachPortmap(t, func(t *testing.T, p plugins, backend string) {
		outside := netip.MustParseAddr("192.0.2.2")
		conditions := []string{"!", "-s", outside.String()}
		if backend == "nftables" {
			conditions = []string{fmt.Sprintf("ip saddr != %s", outside)}
		}
		n, _ := newHostPort(t, p, false, portmap(hostPort, plugin{"backend": backend, "conditionsV4": conditions}))
		to := addrPort(n.all[0].IPv4, hostPort)
		eventually(t, func() error { return testbed.WantRefused(n.client, "tcp", to) })
		eventually(t, func() error {
			return asks("a host port", n.all[1].Host, testbed.Target{Network: "tcp", To: to}, n.all[0].pods[0].Name, nil)
		})
		finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin portmap", Version: p.version, Case: backend + ": `conditionsV4`", Verdict: works})
	})
}

// firewall accepts what pods send, and what answers them, in the chain FORWARD.
func TestFirewallPlugin(t *testing.T) {
	forEachPlugins(t, func(t *testing.T, p plugins) {
		for tried, settings := range map[string]plugin{
			"iptables":                  {"type": "firewall", "backend": "iptables"},
			"ingressPolicy same-bridge": {"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"},
		} {
			t.Run(tried, func(t *testing.T) {
				n := newNodes(t, 2)
				n.addPods(p, func(on *node) []plugin {
					return []plugin{on.with("bridge", plugin{"hairpinMode": true}), settings}
				})
				m := n.addMix()
				n.startProxies()
				m.works(n)
				finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin firewall", Version: p.version, Case: tried, Verdict: works})
			})
		}
		t.Run("FORWARD drops", func(t *testing.T) {
			n := newNodes(t, 2)
			n.addPods(p, func(on *node) []plugin {
				return []plugin{on.with("bridge", plugin{"hairpinMode": true}), {"type": "firewall", "backend": "iptables"}}
			})
			m := n.addMix()
			n.startProxies()
			first := n.all[0]
			for _, command := range []string{"iptables", "ip6tables"} {
				first.run(command, "-P", "FORWARD", "DROP")
			}
			to := m.same.nodePort(first, "tcp", model.IPv4)
			eventually(t, func() error { return testbed.WantSilence(n.client, to.Network, to.To) })
			eventually(t, func() error {
				return asks("a pod", first.pods[0], m.other.target("tcp", model.IPv4), n.all[1].pods[0].Name, nil)
			})
			first.run("iptables", "-A", "FORWARD", "-d", first.cidrs[model.IPv4].String(), "-j", "ACCEPT")
			first.run("ip6tables", "-A", "FORWARD", "-d", first.cidrs[model.IPv6].String(), "-j", "ACCEPT")
			for _, command := range []string{"iptables", "ip6tables"} {
				first.run(command, "-A", "FORWARD", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
			}
			m.works(n)
			finds(t, finding{Group: cniGroup, Neighbour: "CNI plugin firewall", Version: p.version, Case: "policy DROP of the chain FORWARD", Verdict: worksIf,
				Note: "the chain accepts connections to pods and with conntrack state DNAT; the plugin accepts those of pods"})
		})
	})
}
