package test

import (
	"maps"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const zoneFloorAnnotation = "nftproxy.dev/zone-floor"

// floored returns a Service with a zone floor. Its first endpoint is on the node.
func floored(floor string, zones map[*netlab.Host]string, pods ...*netlab.Host) service {
	return service{Name: "web", N: 1, Pods: pods, In: zones, Annotations: map[string]string{zoneFloorAnnotation: floor}}
}

// unevenShares checks shares of round robin: parts of two turns may be left over, and one in
// eight connections is on the other turn.
func unevenShares(t *testing.T, what string, want map[string]int, names []string) {
	t.Helper()
	got := count(names)
	all := maps.Clone(got)
	maps.Copy(all, want)
	for name := range all {
		if d := got[name] - want[name]; d < -8 || d > 8 || (got[name] > 0) != (want[name] > 0) {
			t.Errorf("%s: %v, want about %v", what, got, want)
			return
		}
	}
}

// 3.61, 3.62, 3.64: a zone serves its clients alone while it has enough endpoints, and below
// the floor as many as it can. Every frontend does the same, and established connections stay.
func TestZoneFloor(t *testing.T) {
	c := newWideCluster(t, 2, 3)
	own, second, far := c.Pods[0], c.Pods[1], c.Remote
	zones := map[*netlab.Host]string{own: nodeZone, second: nodeZone, far[0]: "zone-b", far[1]: "zone-b", far[2]: "zone-c"}
	only := floored("25%", zones, own)
	c.apply(only)
	flows := openFlows(t, c.Client, only.clusterIP)
	for _, step := range []struct {
		name string
		service
		want map[string]int // answers out of 120
	}{
		{"at the floor", floored("25%", zones, own, far[0], far[1], far[2]), map[string]int{"pod-0": 120}},
		{"below the floor", floored("50%", zones, own, far[0], far[1], far[2]), map[string]int{"pod-0": 60, "remote-0": 20, "remote-1": 20, "remote-2": 20}},
		{"half of the zone is back", floored("50%", zones, own, second, far[0], far[1], far[2]), map[string]int{"pod-0": 48, "pod-1": 48, "remote-0": 8, "remote-1": 8, "remote-2": 8}},
		{"every zone alike", floored("100", zones, own, far[0], far[1], far[2]), map[string]int{"pod-0": 30, "remote-0": 30, "remote-1": 30, "remote-2": 30}},
		{"none in the zone", floored("50%", zones, far[:2]...), map[string]int{"remote-0": 60, "remote-1": 60}},
	} {
		t.Run(step.name, func(t *testing.T) {
			c.in(t).apply(step.service)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				for kind, frontend := range step.frontends(c.Node, family) {
					unevenShares(t, "answers by "+kind, step.want, names(t, 120, c.Client, network, frontend))
				}
			})
		})
	}
	for _, f := range flows {
		if f.network != "udp" { // whose endpoint has left
			f.goesOn(t, "its endpoint has left")
		}
	}
}

// 3.63: with policy Local, clients outside of the cluster have the endpoints of the node
// alike, and pods have the ones of the zone floor.
func TestZoneFloorAndLocalPolicy(t *testing.T) {
	c := newWideCluster(t, 3, 2)
	zones := map[*netlab.Host]string{c.Pods[0]: nodeZone, c.Remote[0]: "zone-b", c.Remote[1]: "zone-b"}
	// The second pod has no zone: it is in the node's.
	s := floored("80%", zones, c.Pods[0], c.Pods[1], c.Remote[0], c.Remote[1])
	s.External = "Local"
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		unevenShares(t, "answers outside", map[string]int{"pod-0": 40, "pod-1": 40}, names(t, 80, c.Client, network, s.externalIP(family)))
		unevenShares(t, "answers inside", map[string]int{"pod-0": 25, "pod-1": 25, "remote-0": 15, "remote-1": 15}, names(t, 80, c.Pods[2], network, s.externalIP(family)))
	})
}

// 3.62, 3.64, 5.4: with every scheduler the part of the clients that leave the zone is about
// what the floor says, those that a hash selects are the same on another node of the zone,
// and session affinity keeps a client at an endpoint that remains.
func TestZoneFloorSchedulers(t *testing.T) {
	a := newWideCluster(t, 1, 3)
	b := &cluster{netlab.TestLab(t, 1), t, a.file + "-b", clusterCIDR}
	if err := b.AddRemotePods(3); err != nil {
		t.Fatal(err)
	}
	b.echo(append(b.Pods, b.Remote...)...)
	clients, others := a.crowd(200), b.crowd(200)
	on := func(c *cluster, scheduler string) service {
		zones := map[*netlab.Host]string{c.Pods[0]: nodeZone, c.Remote[0]: "zone-b", c.Remote[1]: "zone-b", c.Remote[2]: "zone-c"}
		s := floored("50%", zones, c.Pods[0], c.Remote[0], c.Remote[1], c.Remote[2])
		s.Annotations[schedulerAnnotation] = scheduler
		s.OnlyTCP = true
		return s
	}
	for _, scheduler := range []string{"random", "source-hash", "maglev"} {
		t.Run(scheduler, func(t *testing.T) {
			a, b := a.in(t), b.in(t)
			inA, inB := on(a, scheduler), on(b, scheduler)
			a.apply(inA)
			for _, family := range model.Families {
				got := bind(t, clients, "tcp", inA.clusterIP(family))
				if n := len(got.of("pod-0")); n < 60 || n > 140 {
					t.Errorf("%s: %d of 200 clients stay in the zone, want about 100", family, n)
				}
				if scheduler == "random" {
					continue
				}
				b.apply(inB)
				for i, name := range bind(t, others, "tcp", inB.clusterIP(family)) {
					if at := slices.Index(others, i); got[clients[at]] != name {
						t.Errorf("client %d: %s on one node, %s on the other", at, got[clients[at]], name)
					}
				}
			}
		})
	}
	sticky := on(a, "round-robin")
	sticky.Affinity = 600
	a.apply(sticky)
	bound := bind(t, clients[:20], "tcp", sticky.clusterIP(model.IPv4))
	sticky.Annotations[zoneFloorAnnotation] = "90%"
	a.apply(sticky)
	bound.hold(t, "the floor has changed", "tcp", sticky.clusterIP(model.IPv4))
}
