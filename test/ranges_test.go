package test

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Source ranges by the clients inside.
var (
	clientRanges = []string{"192.0.2.2/31", "2001:db8::2/127"} // not the node
	otherRanges  = []string{"192.0.2.128/25", "2001:db8:ffff::/48"}
	uplinkRanges = []string{"192.0.2.0/24", "2001:db8::/64"} // client and node
	podRanges    = []string{"10.128.0.0/16", "fd00:10:128::/48"}
)

// rangesServices returns a service for each of the ranges and policies.
func rangesServices(pods []*netlab.Host, policy string) (forClient, forOthers, forPods service) {
	s := service{Pods: pods, Internal: policy, External: policy}
	forClient, forOthers, forPods = s, s, s
	forClient.Name, forClient.N, forClient.SourceRanges = "client", 1, clientRanges
	forOthers.Name, forOthers.N, forOthers.SourceRanges = "others", 2, otherRanges
	forPods.Name, forPods.N, forPods.SourceRanges = "pods", 3, podRanges
	return forClient, forOthers, forPods
}

// 4.30, 4.31, 4.32: load balancer addresses are closed to all other clients,
// the other frontends of the same service are not.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Cluster", "Local"} {
		t.Run(policy, func(t *testing.T) {
			c := newWideCluster(t, 2, 1)
			forClient, forOthers, forPods := rangesServices(c.Pods[:1], policy)
			c.apply(forClient, forOthers, forPods)
			inside := append([]*netlab.Host{c.Pods[1]}, c.Remote...)
			forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
				ask(t, c.Client, network, forClient.loadBalancerIP(family))
				for _, pod := range inside {
					ask(t, pod, network, forPods.loadBalancerIP(family))
				}
				silent(t, append(inside, c.Node), network, forClient.loadBalancerIP(family))
				silent(t, []*netlab.Host{c.Client, c.Node}, network, forPods.loadBalancerIP(family))
				silent(t, c.allClients(), network, forOthers.loadBalancerIP(family))
				for _, from := range c.allClients() {
					for _, frontend := range []netip.AddrPort{forOthers.clusterIP(family),
						forOthers.externalIP(family), forOthers.nodePort(c.Node, family)} {
						ask(t, from, network, frontend)
					}
				}
			})
		})
	}
}

// 4.31: frontends without source ranges hide the client as usual.
func TestNodePortIgnoresSourceRanges(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods, SourceRanges: otherRanges}
	c.apply(web)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		if got := ask(t, c.Client, network, web.nodePort(c.Node, family)); !c.IsNode(got.Client) {
			t.Errorf("endpoint sees %s, want the node", got.Client)
		}
	})
}

// 4.30: an excluded client cannot find out that there is no endpoint.
func TestSourceRangesWithoutEndpoints(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Cluster", "Local"} {
		t.Run(policy, func(t *testing.T) {
			c := newWideCluster(t, 1, 1)
			forClient, forOthers, forPods := rangesServices(nil, policy)
			c.apply(forClient, forOthers, forPods)
			inside := append(c.Remote, c.Pods[0])
			forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
				refused(t, []*netlab.Host{c.Client}, network, forClient.loadBalancerIP(family))
				refused(t, inside, network, forPods.loadBalancerIP(family))
				silent(t, c.allClients(), network, forOthers.loadBalancerIP(family))
				refused(t, c.allClients(), network, forOthers.externalIP(family), forOthers.nodePort(c.Node, family))
			})
		})
	}
}

// 4.30 with table 4-B: an allowed client from outside gets silence where the
// policy is Local and there is no endpoint here; the node passes.
func TestSourceRangesWithoutLocalEndpoint(t *testing.T) {
	c := newWideCluster(t, 1, 1)
	web := service{Name: "web", N: 1, Pods: c.Remote, External: "Local", SourceRanges: uplinkRanges}
	c.apply(web)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		silent(t, []*netlab.Host{c.Client, c.Pods[0]}, network, web.loadBalancerIP(family))
		ask(t, c.Node, network, web.loadBalancerIP(family))
	})
}

// 4.33: the node that holds a load balancer address dials it from that
// address.
func TestSourceRangesAndAddressOnNode(t *testing.T) {
	c := newCluster(t, 1)
	open := service{Name: "open", N: 1, Pods: c.Pods, SourceRanges: uplinkRanges}
	closed := service{Name: "closed", N: 2, Pods: c.Pods, SourceRanges: clientRanges}
	c.apply(open, closed)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		ask(t, c.Node, network, open.loadBalancerIP(family)) // from the node's own address
		silent(t, []*netlab.Host{c.Node}, network, closed.loadBalancerIP(family))
	})
	for _, family := range model.Families {
		for _, s := range []service{open, closed} {
			if err := c.Node.AddAddress(s.loadBalancerIP(family).Addr()); err != nil {
				t.Fatal(err)
			}
		}
	}
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		ask(t, c.Node, network, open.loadBalancerIP(family))
		silent(t, []*netlab.Host{c.Node}, network, closed.loadBalancerIP(family))
		silent(t, c.Pods, network, open.loadBalancerIP(family))
	})
}

func TestWhatSourceRangesMean(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		ranges []string
		from4  bool // whether the client gets through
		from6  bool
	}{
		{name: "1.25 of IPv6 alone", ranges: []string{"2001:db8:ffff::/48"}, from4: true},
		{name: "1.25 of IPv4 alone", ranges: []string{"192.0.2.128/25"}, from6: true},
		{name: "1.24 everybody", ranges: []string{"10.0.0.0/8", "0.0.0.0/0", "2001:db8:ffff::/48", "::/0"}, from4: true, from6: true},
		{name: "1.24 everybody of IPv4", ranges: []string{"10.0.0.0/8", "0.0.0.0/0", "2001:db8:ffff::/48"}, from4: true},
		{name: "1.24 half of everybody, the other half", ranges: []string{"0.0.0.0/1", "8000::/1"}},
		{name: "1.24 half of everybody", ranges: []string{"128.0.0.0/1", "::/1"}, from4: true, from6: true},
		{name: "1.26 overlapping", ranges: []string{"192.0.0.0/16", "192.0.2.0/24", "192.0.2.2/32", "192.0.2.0/24",
			"2001:db8::/32", "2001:db8::/64", "2001:db8::/64"}, from4: true, from6: true},
		{name: "1.26 adjacent", ranges: []string{"192.0.2.0/31", "192.0.2.2/31", "192.0.2.4/30", "2001:db8::/127", "2001:db8::2/127"},
			from4: true, from6: true},
		{name: "1.26 overlapping, without the client", ranges: []string{"192.0.2.128/25", "192.0.2.192/26", "192.0.2.255/32",
			"2001:db8:f000::/36", "2001:db8:ffff::/48"}},
		{name: "1.23 with blanks", ranges: []string{" 192.0.2.2/32", "2001:db8::2/128 "}, from4: true, from6: true},
		{name: "1.34 with host bits", ranges: []string{"192.0.2.200/24", "2001:db8::99/64"}, from4: true, from6: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 1)
			web := service{Name: "web", N: 1, Pods: c.Pods, SourceRanges: test.ranges}
			c.apply(web)
			forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
				if family == model.IPv4 && test.from4 || family == model.IPv6 && test.from6 {
					ask(t, c.Client, network, web.loadBalancerIP(family))
				} else {
					silent(t, []*netlab.Host{c.Client}, network, web.loadBalancerIP(family))
				}
			})
		})
	}
}

// 4.31: an address that is an external IP as well is closed.
func TestSourceRangesOfSharedAddress(t *testing.T) {
	c := newCluster(t, 1)
	shared := []string{"203.0.113.1", "2001:db8:2::1"}
	web := service{Name: "web", N: 1, Pods: c.Pods, SourceRanges: otherRanges, ExternalIPs: shared, LoadBalancerIPs: shared}
	c.apply(web)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		silent(t, c.allClients(), network, web.loadBalancerIP(family))
		ask(t, c.Client, network, web.nodePort(c.Node, family))
	})
}

// 4.34: services that share an address on different ports have ranges of their
// own.
func TestSourceRangesByPort(t *testing.T) {
	c := newCluster(t, 1)
	shared := []string{"203.0.113.1", "2001:db8:2::1"}
	open := service{Name: "open", N: 1, Pods: c.Pods, Port: 80, LoadBalancerIPs: shared}
	near := service{Name: "near", N: 2, Pods: c.Pods, Port: 81, LoadBalancerIPs: shared, SourceRanges: clientRanges}
	closed := service{Name: "closed", N: 3, Pods: c.Pods, Port: 82, LoadBalancerIPs: shared, SourceRanges: otherRanges}
	c.apply(open, near, closed)
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		vip := open.loadBalancerIP(family).Addr()
		to := func(s service) netip.AddrPort { return netip.AddrPortFrom(vip, s.PortNumber()) }
		ask(t, c.Client, network, to(open))
		ask(t, c.Pods[0], network, to(open))
		ask(t, c.Client, network, to(near))
		silent(t, c.Pods, network, to(near))
		silent(t, c.allClients(), network, to(closed))
	})
}

// A change of the ranges takes effect immediately, and established flows go on.
func TestSourceRangesChange(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	flows := openFlows(t, c.Client, web.loadBalancerIP)
	for _, step := range []struct {
		name   string
		ranges []string
		open   bool
	}{
		{"none", nil, true}, {"closed", otherRanges, false}, {"open", clientRanges, true},
		{"wider", append(clientRanges, podRanges...), true}, {"closed again", otherRanges, false}, {"none again", nil, true},
	} {
		t.Run(step.name, func(t *testing.T) {
			web.SourceRanges = step.ranges
			c.in(t).apply(web)
			forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
				if step.open {
					ask(t, c.Client, network, web.loadBalancerIP(family))
				} else {
					silent(t, []*netlab.Host{c.Client}, network, web.loadBalancerIP(family))
				}
			})
			for _, f := range flows {
				f.goesOn(t, step.name)
			}
		})
	}
}
