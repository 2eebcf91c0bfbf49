package test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// vip are the addresses of a Service without ClusterIP.
var vip = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("203.0.113.10"), model.IPv6: netip.MustParseAddr("2001:db8:113::10")}

// withoutClusterIP is a Service that is served on load balancer addresses only.
func (c *cluster) withoutClusterIP(annotations string) string {
	text := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {%s}}
spec:
  type: LoadBalancer
  ports: [{name: tcp, port: %d}, {name: udp, port: %[2]d, protocol: UDP}]
status: {loadBalancer: {ingress: [{ip: %s}, {ip: "%s"}]}}
`, annotations, servicePort, vip[model.IPv4], vip[model.IPv6])
	for _, f := range model.Families {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: tcp, port: %d}, {name: udp, port: %[3]d, protocol: UDP}]
endpoints: [{addresses: ["%s"]}]
`, map[model.Family]string{model.IPv4: "4", model.IPv6: "6"}[f], f, echoPort, c.Pods[0].Address(f))
	}
	return text
}

func (c *cluster) applyText(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.file, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.mustRun(0, c.command("apply"))
}

// 1.40, 1.41: a load balancer address that is also an address of the machine. The
// Service takes its port, and the machine keeps the others and answers pings.
func TestLoadBalancerAddressOfTheMachine(t *testing.T) {
	c := newCluster(t, 1)
	alias, err := c.Node.Alias(vip[model.IPv4], vip[model.IPv6])
	if err != nil {
		t.Fatal(err)
	}
	own, err := alias.Echo(echoPort)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	c.applyText(c.withoutClusterIP(""))
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, from := range c.allClients() {
			if got := ask(t, from, network, netip.AddrPortFrom(vip[family], servicePort)); got.Name != c.Pods[0].Name || !c.IsNode(got.Client) {
				t.Errorf("from %s: served by %s, which sees %s; want the pod, which sees the node", from.Name, got.Name, got.Client)
			}
			if got := ask(t, from, network, netip.AddrPortFrom(vip[family], echoPort)); got.Name != c.Node.Name {
				t.Errorf("from %s: another port is served by %s, want the node itself", from.Name, got.Name)
			}
			if err := from.Ping(vip[family], patience); err != nil {
				t.Errorf("from %s: %v", from.Name, err)
			}
		}
	})
}

// 1.42: endpoints see clients, but the node instead of itself and of a pod that
// reaches itself.
func TestClientAddressesAreKept(t *testing.T) {
	c := newCluster(t, 2)
	c.applyText(c.withoutClusterIP("nftproxy.dev/client-addresses: keep"))
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for from, kept := range map[*netlab.Host]bool{c.Client: true, c.Pods[1]: true, c.Pods[0]: false, c.Node: false} {
			got := ask(t, from, network, netip.AddrPortFrom(vip[family], servicePort))
			if kept && got.Client != from.Address(family) {
				t.Errorf("from %s: the endpoint sees %s, want %s", from.Name, got.Client, from.Address(family))
			} else if !kept && !c.IsNode(got.Client) {
				t.Errorf("from %s: the endpoint sees %s, want the node", from.Name, got.Client)
			}
		}
	})
}

// 1.42: an endpoint sees the node at the ClusterIP, too.
func TestClientAddressesAreMasqueraded(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = nil // without a range of pods, no client of a ClusterIP is masqueraded
	text := c.withoutClusterIP("%s")
	clusterIP := "\nspec:\n  clusterIPs: [10.96.0.1, \"fd00:10:96::1\"]"
	for _, annotation := range []string{"", "nftproxy.dev/client-addresses: masquerade"} {
		with := fmt.Sprintf(text, annotation)
		c.applyText(strings.Replace(with, "\nspec:", clusterIP, 1))
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			to := map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("10.96.0.1"), model.IPv6: netip.MustParseAddr("fd00:10:96::1")}[family]
			got := ask(t, c.Pods[1], network, netip.AddrPortFrom(to, servicePort))
			if masqueraded := c.IsNode(got.Client); masqueraded != (annotation != "") {
				t.Errorf("with %q the endpoint sees %s", annotation, got.Client)
			}
		})
	}
}

// 1.43 to 1.45: a Balance from "nftproxy new" serves TCP and UDP in both families, with
// ports that are shifted and one that is not, and a backup server takes over.
func TestBalanceServes(t *testing.T) {
	c := newCluster(t, 3)
	listen := fmt.Sprintf("%s:%d-%d,[%s]:%[2]d-%[3]d", vip[model.IPv4], servicePort, servicePort+1, vip[model.IPv6])
	args := []string{"new", listen, "--name", "web", "--protocol", "tcp,udp"}
	for _, f := range model.Families {
		host := c.Pods[0].Address(f).String()
		backup := netip.AddrPortFrom(c.Pods[1].Address(f), echoPort).String()
		if f == model.IPv6 {
			host = "[" + host + "]"
		}
		args = append(args, fmt.Sprintf("%s:%d-%d", host, echoPort-1, echoPort), "--backup", backup)
	}
	balance := c.mustRun(0, exec.Command(binary, args...))
	c.applyText(balance)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, from := range c.allClients() {
			if got := ask(t, from, network, netip.AddrPortFrom(vip[family], servicePort+1)); got.Name != c.Pods[0].Name {
				t.Errorf("from %s: served by %s, want %s", from.Name, got.Name, c.Pods[0].Name)
			}
		}
	})
	for _, f := range model.Families { // no backend serves the first port of the range
		refused(t, []*netlab.Host{c.Client}, "tcp", netip.AddrPortFrom(vip[f], servicePort))
	}
	drained := fmt.Sprintf("kind: Balance\nname: web\nlisten: [%s]\nprotocol: tcp, udp\nbackends:\n", `"`+strings.ReplaceAll(listen, ",", `", "`)+`"`)
	for _, f := range model.Families {
		drained += fmt.Sprintf("- {address: %q, port: %d-%d, drain: true}\n- {address: %q, backup: true}\n",
			c.Pods[0].Address(f), echoPort-1, echoPort, netip.AddrPortFrom(c.Pods[1].Address(f), echoPort))
	}
	c.applyText(drained)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for port := uint16(servicePort); port <= servicePort+1; port++ {
			if got := ask(t, c.Client, network, netip.AddrPortFrom(vip[family], port)); got.Name != c.Pods[1].Name {
				t.Errorf("port %d is served by %s, want the backup server %s", port, got.Name, c.Pods[1].Name)
			}
		}
	})
}
