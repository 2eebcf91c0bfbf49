package test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// listed returns the annotations for lists of clients; nil: none.
func listed(allowed, denied []string) map[string]string {
	out := make(map[string]string)
	for name, list := range map[string][]string{model.SourceRangesAnnotation: allowed, model.DeniedSourcesAnnotation: denied} {
		if list != nil {
			out[name] = strings.Join(list, ", ")
		}
	}
	return out
}

// addressesOf returns the addresses of hosts.
func addressesOf(hosts ...*netlab.Host) (out []string) {
	for _, h := range hosts {
		out = append(out, h.IPv4.String(), h.IPv6.String())
	}
	return out
}

// 4.75, 4.76, 4.79, 4.80: lists apply to clients of every kind at all frontends, with
// NodePorts on the first address of the node or on all.
func TestClientLists(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"primary": clusterCIDR, "all addresses": allAddresses} {
		t.Run(name, func(t *testing.T) {
			c := newWideCluster(t, 2, 1)
			c.flags = flags
			s := service{Pods: c.Pods[1:], Annotations: listed(slices.Concat(clientRanges, podRanges, addressesOf(c.Remote...)), addressesOf(c.Pods[0]))}
			allowed, denied, node, others, closed := s, s, s, s, s
			allowed.Name, allowed.N = "allowed", 1
			denied.Name, denied.N, denied.Annotations = "denied", 2, listed(nil, addressesOf(c.Client, c.Node))
			node.Name, node.N, node.Annotations = "node", 3, listed(addressesOf(c.Node), nil)
			others.Name, others.N, others.Annotations = "others", 4, nil
			closed.Name, closed.N, closed.Annotations = "closed", 5, listed([]string{}, nil)
			c.apply(allowed, denied, node, others, closed)
			pods, all := append(c.Remote, c.Pods[1]), c.allClients()
			forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
				for _, test := range []struct {
					service
					clients []*netlab.Host
				}{
					{allowed, append(pods, c.Client)}, {denied, append(pods, c.Pods[0])}, {node, []*netlab.Host{c.Node}}, {others, all}, {closed, nil},
				} {
					frontends := slices.Collect(maps.Values(test.frontends(c.Node, family)))
					for _, from := range test.clients {
						for _, to := range frontends {
							ask(t, from, network, to)
						}
					}
					excluded := slices.DeleteFunc(slices.Clone(all), func(h *netlab.Host) bool { return slices.Contains(test.clients, h) })
					silent(t, excluded, network, frontends...)
				}
			})
		})
	}
}

// 4.77: a family without a range is closed, and a load balancer address admits clients
// that are in both lists.
func TestClientListsCombined(t *testing.T) {
	c := newCluster(t, 1)
	family4 := service{Name: "four", N: 1, Pods: c.Pods, Annotations: listed([]string{"0.0.0.0/0"}, nil)}
	both := service{Name: "both", N: 2, Pods: c.Pods, SourceRanges: clientRanges, Annotations: listed(uplinkRanges, nil)}
	neither := service{Name: "neither", N: 3, Pods: c.Pods, SourceRanges: clientRanges, Annotations: listed(podRanges, nil)}
	c.apply(family4, both, neither)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		if family == model.IPv4 {
			ask(t, c.Client, network, family4.clusterIP(family))
		} else {
			silent(t, c.allClients(), network, family4.clusterIP(family), family4.nodePort(c.Node, family))
		}
		ask(t, c.Client, network, both.loadBalancerIP(family))
		ask(t, c.Node, network, both.externalIP(family))
		silent(t, []*netlab.Host{c.Node, c.Pods[0]}, network, both.loadBalancerIP(family))
		silent(t, c.allClients(), network, neither.loadBalancerIP(family))
		ask(t, c.Pods[0], network, neither.externalIP(family))
	})
}

// 4.82: the lists decide about new connections. UDP flows of a client that may
// no longer connect end, and TCP connections continue.
func TestDaemonEndsFlowsOfDeniedClients(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	d := c.start()
	c.answersFrom(web, "pod-0")
	var denied, others []flow
	for _, to := range []func(model.Family) netip.AddrPort{
		web.clusterIP, web.loadBalancerIP, web.externalIP, func(f model.Family) netip.AddrPort { return web.nodePort(c.Node, f) },
	} {
		denied = append(denied, openFlows(t, c.Client, to)...)
		others = append(others, openFlows(t, c.Pods[1], to)...)
	}
	web.Annotations = listed(nil, addressesOf(c.Client))
	c.write(web)
	for _, f := range denied {
		if f.network == "tcp" {
			continue
		}
		f.Within(silence)
		eventually(t, func() error {
			if got, err := f.Ask(); err == nil {
				return fmt.Errorf("%s: an answer of %s", f.family, got.Name)
			}
			return nil
		})
	}
	for _, f := range append(others, denied...) {
		if f.network == "tcp" || slices.Contains(others, f) {
			f.goesOn(t, "another client is denied")
		}
	}
	d.stop(t)
}
