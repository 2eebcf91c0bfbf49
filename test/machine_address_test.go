package test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// onNodeAddress is a Service on the addresses of the node itself, beside another one with
// a NodePort.
func (c *cluster) onNodeAddress(spec string, endpoints bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
apiVersion: v1
kind: Node
metadata: {name: node}
status: {addresses: [{type: InternalIP, address: %[1]s}, {type: InternalIP, address: "%[2]s"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{name: tcp, port: %[3]d}, {name: udp, port: %[3]d, protocol: UDP}]
  %[4]s
status: {loadBalancer: {ingress: [{ip: %[1]s}, {ip: "%[2]s"}]}}
---
apiVersion: v1
kind: Service
metadata: {name: ports}
spec:
  type: NodePort
  clusterIPs: [10.96.0.1, "fd00:10:96::1"]
  ports: [{name: tcp, port: 80, nodePort: 30080}, {name: udp, port: 80, nodePort: 30080, protocol: UDP}]
`, c.Node.IPv4, c.Node.IPv6, servicePort, spec)
	slices := map[string]bool{"web": endpoints, "ports": true}
	for name, filled := range slices {
		for _, f := range model.Families {
			hosts := ""
			if filled {
				hosts = fmt.Sprintf(`{addresses: ["%s"]}`, c.Pods[0].Address(f))
			}
			fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: tcp, port: %[4]d}, {name: udp, port: %[4]d, protocol: UDP}]
endpoints: [%[5]s]
`, name, strings.ToLower(f.String()), f, echoPort, hosts)
		}
	}
	return b.String()
}

// 1.41, 4.23: a Service on the addresses by which the machine itself is reached takes its
// own ports there and nothing else: a server of the machine (such as that of SSH) answers,
// and so do pings, with NodePorts, for clients that the Service does not allow, and while it
// has no endpoints.
func TestServiceOnNodeAddress(t *testing.T) {
	c := newCluster(t, 1)
	own, err := c.Node.Echo(echoPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	for _, state := range []struct {
		name, spec string
		endpoints  bool
		serves     bool // the client
		refused    bool // else dropped
	}{
		{"all clients", "", true, true, false},
		{"allowed clients", fmt.Sprintf(`loadBalancerSourceRanges: ["%s/32", "%s/128"]`, c.Client.IPv4, c.Client.IPv6), true, true, false},
		{"other clients", `loadBalancerSourceRanges: [198.51.100.0/24, "2001:db8:ffff::/64"]`, true, false, false},
		{"affinity", "sessionAffinity: ClientIP", true, true, false},
		{"no endpoints", "", false, false, true},
	} {
		t.Run(state.name, func(t *testing.T) {
			c.applyText(c.onNodeAddress(state.spec, state.endpoints))
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(c.Node.Address(family), port) }
				c.keepsOwnPorts(t, network, family)
				wait := silence
				if state.serves || state.refused {
					wait = patience
				}
				switch got, err := c.Client.Ask(network, at(servicePort), wait); {
				case state.serves && (err != nil || got.Name != c.Pods[0].Name):
					t.Errorf("the Service: %v, %v", got, err)
				case !state.serves && err == nil:
					t.Errorf("the Service answers: %v", got)
				case state.refused && !errors.Is(err, syscall.ECONNREFUSED):
					t.Errorf("the Service: %v, want a refusal", err)
				}
				got, err := c.Client.Ask(network, at(30080), patience)
				if err != nil || got.Name != c.Pods[0].Name {
					t.Errorf("the NodePort: %v, %v", got, err)
				}
			})
		})
	}
}

// keepsOwnPorts checks that the node answers on its own port and to pings.
func (c *cluster) keepsOwnPorts(t *testing.T, network string, family model.Family) {
	t.Helper()
	for _, from := range []*netlab.Host{c.Client, c.Pods[0], c.Node} {
		if got := ask(t, from, network, netip.AddrPortFrom(c.Node.Address(family), echoPort)); got.Name != c.Node.Name {
			t.Errorf("from %s: the port of the node is served by %s", from.Name, got.Name)
		}
		if err := from.Ping(c.Node.Address(family), patience); err != nil {
			t.Errorf("from %s: %v", from.Name, err)
		}
	}
}
