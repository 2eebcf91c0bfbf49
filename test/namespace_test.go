package test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// claimant is a Service "web" of a namespace with one endpoint. Its slices are labelled with
// the name of the Service, which another namespace has, too.
type claimant struct {
	namespace, created, clusterIP, clusterIP6 string
	pod                                       int
	external, balanced                        string // lists of addresses
}

func (c *cluster) claim(s claimant) string {
	text := fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %s, creationTimestamp: "%s"}
spec:
  type: LoadBalancer
  clusterIP: %s
  clusterIPs: [%[3]s, "%[4]s"]
  externalIPs: [%[5]s]
  ports: [{name: tcp, port: %[6]d}, {name: udp, port: %[6]d, protocol: UDP}]
status: {loadBalancer: {ingress: [%[7]s]}}
`, s.namespace, s.created, s.clusterIP, s.clusterIP6, s.external, servicePort, s.balanced)
	for i, f := range model.Families {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: %s, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: tcp, port: %d}, {name: udp, port: %[4]d, protocol: UDP}]
endpoints: [{addresses: ["%[5]s"]}]
`, i, s.namespace, f, echoPort, c.Pods[s.pod].Address(f))
	}
	return text
}

// TestOtherNamespace: 2.2, 4.39. An author of one namespace claims the ClusterIP of a Service
// of another one, even by an older Service, and its load balancer address, by a younger one,
// and has slices with the label of that Service. All clients still reach its own endpoint;
// the author's Service works at its own address.
func TestOtherNamespace(t *testing.T) {
	c := newCluster(t, 2)
	balanced := fmt.Sprintf(`{ip: %s}, {ip: "%s"}`, vip[model.IPv4], vip[model.IPv6])
	external := fmt.Sprintf(`%s, "%s"`, vip[model.IPv4], vip[model.IPv6])
	victim := claimant{namespace: "shop", created: "2026-02-01T00:00:00Z", clusterIP: "10.96.0.10", clusterIP6: "fd00:10:96::10", balanced: balanced}
	thief := claimant{namespace: "evil", created: "2026-03-01T00:00:00Z", clusterIP: "10.96.0.66", clusterIP6: "fd00:10:96::66",
		pod: 1, external: external + `, 10.96.0.10, "fd00:10:96::10"`, balanced: balanced}
	older := thief
	older.created, older.external, older.balanced = "2020-01-01T00:00:00Z", `10.96.0.10, "fd00:10:96::10"`, ""
	for name, attacker := range map[string]claimant{"a younger Service": thief, "an older Service": older} {
		c := c.in(t)
		c.applyText(c.claim(attacker) + c.claim(victim))
		t.Run(name, func(t *testing.T) {
			forEachFlow(t, func(t *testing.T, network string, f model.Family) {
				for address, pod := range map[string]int{
					map[model.Family]string{model.IPv4: victim.clusterIP, model.IPv6: victim.clusterIP6}[f]: victim.pod,
					vip[f].String(): victim.pod,
					map[model.Family]string{model.IPv4: attacker.clusterIP, model.IPv6: attacker.clusterIP6}[f]: attacker.pod,
				} {
					for range 4 {
						to := netip.AddrPortFrom(netip.MustParseAddr(address), servicePort)
						if got := ask(t, c.Client, network, to); got.Name != c.Pods[pod].Name {
							t.Errorf("%s is served by %s, want %s", to, got.Name, c.Pods[pod].Name)
						}
					}
				}
			})
		})
	}
}
