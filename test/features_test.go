package test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// annotated returns a service with one endpoint and several sets of annotations.
func annotated(name string, n int, pod *netlab.Host, sets ...map[string]string) service {
	s := service{Name: name, N: n, Pods: []*netlab.Host{pod}, Annotations: make(map[string]string)}
	for _, set := range sets {
		maps.Copy(s.Annotations, set)
	}
	return s
}

// TestFeatures uses each optional feature a little, on one node, and several of them in one
// Service. Few packets suffice for emulated machines: .ci/run selects this test for them.
func TestFeatures(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = append([]string{"--nodeport-addresses", "primary,localhost", "--answer-ping", "--load-balancer-cidrs", balancerCIDRs}, clusterCIDR...)
	rates := map[string]string{"nftproxy.dev/connection-rate": "1/hour burst 3", "nftproxy.dev/connection-rate-per-client": "1/hour burst 2"}
	numbers := map[string]string{"nftproxy.dev/max-connections": "3", "nftproxy.dev/max-connections-per-client": "2"}
	denied := listed(nil, addressesOf(c.Client))
	web, hashed := annotated("web", 1, c.Pods[0]), annotated("hashed", 2, c.Pods[0], map[string]string{schedulerAnnotation: "maglev"})
	media, closed := annotated("media", 3, c.Pods[0], ports("8000-8999")), annotated("closed", 4, c.Pods[0], denied)
	rated, counted := annotated("rated", 5, c.Pods[0], rates), annotated("counted", 6, c.Pods[0], numbers)
	every := annotated("every", 7, c.Pods[0], ports("8000-8999"), denied, rates, numbers, map[string]string{schedulerAnnotation: "maglev-port"})
	hashed.Pods, media.Dialled, every.Dialled = c.Pods, echoPort, echoPort
	c.write(web, hashed, media, closed, rated, counted, every)
	d := c.start()
	c.serves(web)
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			client, balancer := []*netlab.Host{c.Client}, web.loadBalancerIP(family).Addr()
			c.becomes(c.Node, onLocalhost(web, family), nil)
			pings(t, client, balancer, "a reply", isReply)
			refused(t, client, "udp", netip.AddrPortFrom(balancer, 81), media.ranged(family, 9000)["ClusterIP"])
			if got := ask(t, c.Client, "tcp", media.externalIP(family)).Port; got != echoPort {
				t.Errorf("%s: port %d of the range answers", media.Name, got)
			}
			if got := count(names(t, 6, c.Client, "udp", hashed.clusterIP(family))); len(got) != 1 {
				t.Errorf("a client has the endpoints %v", got)
			}
			ask(t, c.Node, "udp", closed.clusterIP(family))
			for _, from := range []*netlab.Host{c.Node, c.Node, c.Pods[1]} {
				for _, s := range []service{rated, counted, every} {
					ask(t, from, "udp", s.clusterIP(family))
				}
			}
			silent(t, []*netlab.Host{c.Node, c.Pods[0]}, "udp", rated.clusterIP(family), counted.clusterIP(family), every.clusterIP(family))
			silent(t, client, "udp", closed.clusterIP(family), every.clusterIP(family), service{N: 99}.loadBalancerIP(family))
			c.wantDrops(t, model.LimitClientRate, "udp", rated.clusterIP(family), 1)
			c.wantDrops(t, model.LimitRate, "udp", rated.clusterIP(family), 1)
			c.wantDrops(t, model.LimitClientConnections, "udp", counted.clusterIP(family), 1)
			c.wantDrops(t, model.LimitConnections, "udp", counted.clusterIP(family), 1)
		})
	}
	d.stop(t)
}
