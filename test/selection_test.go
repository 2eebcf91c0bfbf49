package test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const proxyNameLabel = "service.kubernetes.io/service-proxy-name"

// labelled returns a service for another proxy.
func labelled(name string, n int, label string, pods ...*netlab.Host) service {
	return service{Name: name, N: n, Pods: pods, Labels: map[string]string{proxyNameLabel: label}}
}

// 1.2: the label selects which services are served. Other services are unknown;
// their ClusterIP is an unused address, or with the flag, if another proxy may
// serve it, is left alone.
func TestServiceProxyName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		flags  []string
		served string // name of the service
	}{
		{"without the flag", nil, "plain"},
		{"with the flag", []string{"--service-proxy-name", "ours"}, "ours"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.flags = append(test.flags, clusterCIDR...)
			services := []service{{Name: "plain", N: 1, Pods: c.Pods[:1]}, labelled("ours", 2, "ours", c.Pods[0]),
				labelled("theirs", 3, "theirs", c.Pods[0]), labelled("unnamed", 4, "", c.Pods[0])}
			c.apply(services...)
			c.clientHas(services...)
			forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
				inside := []*netlab.Host{c.Node, c.Pods[1]}
				for _, s := range services {
					frontends := s.frontends(c.Node, family)
					if s.Name == test.served {
						for _, frontend := range frontends {
							ask(t, c.Pods[1], network, frontend)
						}
						continue
					}
					if test.flags == nil {
						silent(t, inside, network, s.clusterIP(family))
						delete(frontends, "ClusterIP")
					}
					// By the node, or by the client, who has the address.
					refused(t, inside, network, slices.Collect(maps.Values(frontends))...)
				}
			})
		})
	}
}

// clientHas gives the client the addresses of services.
func (c *cluster) clientHas(services ...service) {
	c.t.Helper()
	for _, s := range services {
		for _, f := range model.Families {
			for _, a := range []netip.AddrPort{s.clusterIP(f), s.externalIP(f), s.loadBalancerIP(f)} {
				if err := c.Client.AddAddress(a.Addr()); err != nil {
					c.t.Fatal(err)
				}
			}
		}
	}
}

// 1.3: setting the label stops serving a service, removing it starts again.
func TestServiceProxyNameChanges(t *testing.T) {
	c := newCluster(t, 2)
	plain := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	for range 2 {
		c.apply(plain)
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			ask(t, c.Client, network, plain.nodePort(c.Node, family))
			ask(t, c.Pods[1], network, plain.clusterIP(family))
		})
		c.apply(labelled("web", 1, "theirs", c.Pods[0]))
		forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
			refused(t, []*netlab.Host{c.Client}, network, plain.nodePort(c.Node, family))
			silent(t, c.Pods[1:], network, plain.clusterIP(family))
		})
	}
}

// 3.4, 3.5, 3.20, 4.17: endpoints that are going away serve when no other is
// left, and what is established stays.
func TestTerminatingEndpoints(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	web := func(ready, terminating, dead []*netlab.Host) service {
		return service{Name: "web", N: 1, Pods: ready, Terminating: terminating, Dead: dead}
	}
	c.apply(web(c.Pods[:1], nil, nil))
	flows := openFlows(t, c.Client, web(nil, nil, nil).clusterIP)
	for _, step := range []struct {
		name string
		service
		want map[string]int // answers out of 8
	}{
		{"3.5 all are terminating", web(nil, c.Pods, nil), map[string]int{"pod-0": 4, "pod-1": 4}},
		{"3.4 another one is ready", web(c.Remote, c.Pods, nil), map[string]int{"remote-0": 8}},
		{"3.5 the others serve no more", web(nil, c.Pods[:1], c.Pods[1:]), map[string]int{"pod-0": 8}},
	} {
		t.Run(step.name, func(t *testing.T) {
			c.in(t).apply(step.service)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				wantShares(t, "answers", step.want, names(t, 8, c.Client, network, step.clusterIP(family)))
			})
			for _, f := range flows {
				f.goesOn(t, step.name)
			}
		})
	}
	t.Run("3.6 none serves", func(t *testing.T) {
		c.in(t).apply(web(nil, nil, c.Pods))
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			refused(t, c.allClients(), network, web(nil, nil, nil).clusterIP(family))
		})
	})
}

// 3.10 to 3.16: hints keep connections near.
func TestTopologyHints(t *testing.T) {
	c := newWideCluster(t, 2, 2)
	near, far := c.Pods[0], c.Remote[0]
	other := map[*netlab.Host]string{c.Pods[0]: "zone-b", c.Pods[1]: "zone-b", far: "zone-b"}
	for _, test := range []struct {
		name         string
		zones, nodes map[*netlab.Host]string
		want         map[string]int // answers out of 12
	}{
		{"3.12 zones", map[*netlab.Host]string{near: nodeZone, c.Pods[1]: "zone-b", far: nodeZone}, nil,
			map[string]int{"pod-0": 6, "remote-0": 6}},
		{"3.11 nodes", other, map[*netlab.Host]string{near: nodeName, c.Pods[1]: "other", far: "other"},
			map[string]int{"pod-0": 12}},
		{"3.13 a hint is missing", map[*netlab.Host]string{near: nodeZone, far: "zone-b"}, nil,
			map[string]int{"pod-0": 4, "pod-1": 4, "remote-0": 4}},
		{"3.13 no node hint names this node", map[*netlab.Host]string{near: "zone-b", c.Pods[1]: "zone-b", far: nodeZone},
			map[*netlab.Host]string{near: "other", c.Pods[1]: "other", far: "other"}, map[string]int{"remote-0": 12}},
		{"3.12 no zone hint names this zone", other, nil, map[string]int{"pod-0": 4, "pod-1": 4, "remote-0": 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := service{Name: "web", N: 1, Pods: []*netlab.Host{near, c.Pods[1], far}, Zones: test.zones, Nodes: test.nodes}
			c.in(t).apply(s)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				// 3.16: by every address.
				for kind, frontend := range s.frontends(c.Node, family) {
					wantShares(t, "answers by "+kind, test.want, names(t, 12, c.Client, network, frontend))
				}
			})
		})
	}
}

// 3.7: hints do not affect policy Local.
func TestTopologyHintsAndLocalPolicy(t *testing.T) {
	c := newWideCluster(t, 3, 1)
	s := service{Name: "web", N: 1, Pods: []*netlab.Host{c.Pods[0], c.Pods[1], c.Remote[0]}, External: "Local",
		Zones: map[*netlab.Host]string{c.Pods[0]: nodeZone, c.Pods[1]: "zone-b", c.Remote[0]: nodeZone}}
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for client, want := range map[*netlab.Host]map[string]int{
			c.Client: {"pod-0": 4, "pod-1": 4}, c.Pods[2]: {"pod-0": 4, "remote-0": 4}} {
			wantShares(t, "answers to "+client.Name, want, names(t, 8, client, network, s.externalIP(family)))
		}
	})
}
