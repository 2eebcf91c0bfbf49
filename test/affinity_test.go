package test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// long is a timeout in seconds that no test outlives.
const long = 3600

// crowd returns clients outside of the cluster, each with addresses of its own.
func (c *cluster) crowd(n int) []*netlab.Host {
	c.t.Helper()
	v4, v6 := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:18::1")
	var all []*netlab.Host
	for range n {
		alias, err := c.Client.Alias(v4, v6)
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, alias)
		v4, v6 = v4.Next(), v6.Next()
	}
	return all
}

// bindings holds the name of the endpoint that answers each client.
type bindings map[*netlab.Host]string

// bind lets every client dial once.
func bind(t *testing.T, clients []*netlab.Host, network string, to netip.AddrPort) bindings {
	t.Helper()
	b := make(bindings)
	for _, client := range clients {
		b[client] = ask(t, client, network, to).Name
	}
	return b
}

// of returns the clients of an endpoint, in no order.
func (b bindings) of(name string) []*netlab.Host {
	var all []*netlab.Host
	for client, endpoint := range b {
		if endpoint == name {
			all = append(all, client)
		}
	}
	return all
}

// spread checks that every endpoint has clients.
func (b bindings) spread(t *testing.T, endpoints ...*netlab.Host) {
	t.Helper()
	for _, e := range endpoints {
		if len(b.of(e.Name)) == 0 {
			t.Fatalf("%s has no client, others have %d", e.Name, len(b))
		}
	}
}

// hold checks that every client stays with its endpoint, whatever it dials.
func (b bindings) hold(t *testing.T, when, network string, to ...netip.AddrPort) {
	t.Helper()
	for _, move := range b.moves(t, network, to...) {
		t.Errorf("%s: %s", when, move)
	}
}

// moves lets every client dial, and returns which have another endpoint.
func (b bindings) moves(t *testing.T, network string, to ...netip.AddrPort) []string {
	t.Helper()
	var moves []string
	for client, want := range b {
		for _, frontend := range to {
			if got := ask(t, client, network, frontend).Name; got != want {
				moves = append(moves, fmt.Sprintf("client %s moved from %s to %s by %s", client.IPv4, want, got, frontend))
			}
		}
	}
	return moves
}

// endpointsOf returns the endpoints that answer clients that dial once.
func endpointsOf(t *testing.T, clients []*netlab.Host, network string, to netip.AddrPort) []string {
	t.Helper()
	return slices.Sorted(maps.Values(bind(t, clients, network, to)))
}

// 5.1, 5.4: a client stays with its endpoint, from whatever port it dials;
// other clients get other endpoints.
func TestAffinity(t *testing.T) {
	c := newWideCluster(t, 4, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods[:3], Affinity: long}
	c.apply(web)
	clients := append(c.crowd(12), c.Node, c.Pods[0], c.Pods[3], c.Remote[0])
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for kind, frontend := range web.frontends(c.Node, family) {
			b := bind(t, clients, network, frontend)
			b.spread(t, web.Pods...)
			b.hold(t, kind, network, frontend, frontend, frontend)
		}
	})
}

// 5.2: each address of a service port has bindings of its own, which do not
// affect each other.
func TestAffinityIsPerFrontend(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	c.apply(web)
	clients := c.crowd(6)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		all := make(map[netip.AddrPort]bindings)
		for _, frontend := range web.frontends(c.Node, family) {
			all[frontend] = bind(t, clients, network, frontend)
		}
		for range 2 {
			for frontend, b := range all {
				b.hold(t, "others are bound", network, frontend)
			}
		}
	})
}

// 5.2: services, and ports of one service, have bindings of their own.
func TestAffinityIsPerServicePort(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	api := service{Name: "api", N: 2, Pods: c.Pods, Affinity: long}
	c.apply(web, api)
	// By round robin every second client is on one endpoint. In the second
	// order these come first, so only shared bindings would be equal.
	first, second := c.crowd(16), []*netlab.Host{}
	for start := range 2 {
		for i := start; i < len(first); i += 2 {
			second = append(second, first[i])
		}
	}
	for _, family := range model.Families {
		all := []bindings{
			bind(t, first, "tcp", web.clusterIP(family)),
			bind(t, second, "udp", web.clusterIP(family)),
			bind(t, second, "tcp", api.clusterIP(family)),
		}
		for i, other := range all[1:] {
			if maps.Equal(all[0], other) {
				t.Errorf("%s: bindings are those of another service port: %d", family, i)
			}
		}
		all[0].hold(t, "others have been bound", "tcp", web.clusterIP(family))
		all[1].hold(t, "others have been bound", "udp", web.clusterIP(family))
		all[2].hold(t, "others have been bound", "tcp", api.clusterIP(family))
	}
}

// 5.6, 5.8: bindings end with their endpoint, and no others do.
func TestAffinityFollowsEndpoints(t *testing.T) {
	c := newCluster(t, 4)
	clients := c.crowd(12)
	sticky := func(pods ...*netlab.Host) service { return service{Name: "web", N: 1, Pods: pods, Affinity: long} }
	gone, stays, added := c.Pods[0], c.Pods[1], c.Pods[2]
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		to := sticky().clusterIP(family)
		c.apply(sticky(gone, stays))
		b := bind(t, clients, network, to)
		b.spread(t, gone, stays)

		c.apply(sticky(gone, stays, added))
		b.hold(t, "5.8 an endpoint was added", network, to)
		c.apply(sticky(gone, stays, added), service{Name: "other", N: 2, Pods: c.Pods})
		b.hold(t, "5.8 another service was added", network, to)

		left := b.of(gone.Name)
		c.apply(sticky(stays, added))
		moved := bind(t, left, network, to)
		moved.spread(t, stays, added)
		maps.DeleteFunc(b, func(client *netlab.Host, name string) bool { return name == gone.Name })
		b.hold(t, "5.8 another endpoint was removed", network, to)

		c.apply(sticky(gone, stays, added))
		moved.hold(t, "5.6 the endpoint is back", network, to)
		b.hold(t, "5.6 the endpoint is back", network, to)
		c.apply() // leaves no binding to the next round
	})
}

// 5.6: clients that did not dial while their endpoint was away are balanced
// again.
func TestAffinityIsForgottenWithEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(12)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		for name, alone := range map[string]service{
			"the other one is left": {Name: "web", N: 1, Pods: c.Pods[1:], Affinity: long},
			"none is left":          {Name: "web", N: 1, Affinity: long},
		} {
			c.apply() // leaves no binding of the round before
			c.apply(web)
			b := bind(t, clients, network, web.clusterIP(family))
			b.spread(t, c.Pods...)
			before := b.of(c.Pods[0].Name)
			c.apply(alone)
			c.apply(web)
			if after := bind(t, before, network, web.clusterIP(family)); len(after.of(c.Pods[0].Name)) == len(before) {
				t.Errorf("%s: all %d clients are still on %s", name, len(before), c.Pods[0].Name)
			}
		}
		c.apply()
	})
}

// 5.7: clients leave an endpoint that is going away while others are ready,
// and stay when there are none.
func TestAffinityToTerminatingEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(8)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		to := web.clusterIP(family)
		c.apply(web)
		b := bind(t, clients, network, to)
		b.spread(t, c.Pods...)

		c.apply(service{Name: "web", N: 1, Terminating: c.Pods, Affinity: long})
		b.hold(t, "all are terminating", network, to)
		c.apply(service{Name: "web", N: 1, Pods: c.Pods[:1], Terminating: c.Pods[1:], Affinity: long})
		for client, name := range bind(t, clients, network, to) {
			if name != c.Pods[0].Name {
				t.Errorf("client %s is on %s, which is terminating", client.IPv4, name)
			}
		}
		c.apply()
	})
}

// 3.21, 5.6: clients of an endpoint that is drained are balanced again.
func TestAffinityToDrainedEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(8)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	drained := web
	drained.Weights = map[*netlab.Host]int{c.Pods[1]: 0}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		to := web.clusterIP(family)
		c.apply(web)
		b := bind(t, clients, network, to)
		left := b.of(c.Pods[1].Name)
		c.apply(drained)
		for client, name := range bind(t, clients, network, to) {
			if name != c.Pods[0].Name {
				t.Errorf("client %s is on %s, which is drained", client.IPv4, name)
			}
		}
		c.apply(web)
		for client, name := range bind(t, left, network, to) {
			if name != c.Pods[0].Name {
				t.Errorf("client %s moved back to %s", client.IPv4, name)
			}
		}
		c.apply()
	})
}

// 5.8: a restart of the program ends no binding.
func TestAffinityOutlivesDaemon(t *testing.T) {
	c := newCluster(t, 3)
	clients := c.crowd(8)
	web := service{Name: "web", N: 1, Pods: c.Pods[:2], Affinity: long}
	c.write(web)
	d := c.start()
	c.serves(web)
	bound := make(map[string]bindings)
	hold := func(when string) {
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			bound[network+family.String()].hold(t, when, network, web.clusterIP(family))
		})
	}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		b := bind(t, clients, network, web.clusterIP(family))
		b.spread(t, web.Pods...)
		bound[network+family.String()] = b
	})
	d.stop(t)
	hold("the daemon has ended")
	next := c.start()
	marker := service{Name: "marker", N: 2, Pods: c.Pods[2:]}
	c.write(web, marker)
	c.answersFrom(marker, c.Pods[2].Name)
	hold("the daemon is back")
	next.stop(t)
}

// serves waits until a service can be reached.
func (c *cluster) serves(s service) {
	c.t.Helper()
	eventually(c.t, func() error {
		_, err := c.Client.Ask("tcp", s.clusterIP(model.IPv4), silence)
		return err
	})
}

// 5.10: turning affinity off ends all bindings.
func TestAffinityTurnedOff(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(8)
	sticky := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	free := service{Name: "web", N: 1, Pods: c.Pods}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		to := sticky.clusterIP(family)
		c.apply(sticky)
		before := bind(t, clients, network, to).of(c.Pods[0].Name)
		c.apply(free)
		roundRobin(t, names(t, 6, before[0], network, to), 2)
		c.apply(sticky)
		if after := endpointsOf(t, before, network, to); len(slices.Compact(after)) != 2 {
			t.Errorf("all %d clients are on %s again", len(before), after[0])
		}
		c.apply()
	})
}

// 5.11: an endpoint in the host network of the node takes part.
func TestAffinityToEndpointOnNode(t *testing.T) {
	c := newCluster(t, 2)
	c.echo(c.Node)
	clients := append(c.crowd(8), c.Node, c.Pods[1])
	web := service{Name: "web", N: 1, Pods: []*netlab.Host{c.Node, c.Pods[0]}, Affinity: long}
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for kind, frontend := range web.frontends(c.Node, family) {
			b := bind(t, clients, network, frontend)
			b.spread(t, web.Pods...)
			b.hold(t, kind, network, frontend, frontend)
		}
	})
}

// 5.12: clients are served when there is no room to remember them.
func TestAffinityWithoutRoom(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = append([]string{"--affinity-size", "8"}, clusterCIDR...)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	c.apply(web)
	clients := c.crowd(24)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		bind(t, clients, network, web.clusterIP(family)).spread(t, c.Pods...)
	})
	if n := len(c.bound(clients)); n == 0 || n > 2*8 {
		t.Errorf("the kernel remembers %d addresses, want 16 at most", n)
	}
	c.apply(web)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods[:1], Affinity: long})
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		bind(t, clients, network, web.clusterIP(family))
	})
}

// 5.4, 5.12: clients that are remembered stay, also if they make more connections than there is
// room for clients.
func TestAffinityOfManyConnections(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(8)
	c.flags = append([]string{"--affinity-size", strconv.Itoa(len(clients))}, clusterCIDR...)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	c.apply(web)
	for _, f := range model.Families {
		b := bind(t, clients, "udp", web.clusterIP(f))
		for range 4 {
			b.hold(t, "further connections", "udp", web.clusterIP(f))
		}
	}
}

// 5.13: affinity changes nothing for frontends without endpoints.
func TestAffinityWithoutEndpoints(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Affinity: long, SourceRanges: clientRanges}
	c.apply(web)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		refused(t, c.allClients(), network, web.clusterIP(family), web.externalIP(family))
		refused(t, []*netlab.Host{c.Client}, network, web.loadBalancerIP(family))
		silent(t, c.Pods, network, web.loadBalancerIP(family))
	})
}
