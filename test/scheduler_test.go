package test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const schedulerAnnotation = "nftproxy.dev/scheduler"

// scheduled returns a service with an annotation; empty: without.
func scheduled(scheduler string, pods ...*netlab.Host) service {
	s := service{Name: "web", N: 1, Pods: pods}
	if scheduler != "" {
		s.Annotations = map[string]string{schedulerAnnotation: scheduler}
	}
	return s
}

// count returns how often each name occurs.
func count(names []string) map[string]int {
	n := make(map[string]int)
	for _, name := range names {
		n[name]++
	}
	return n
}

// Round robin by weight is exact over each whole turn of a counter. A Service
// that is alone has two, and on each a part of a turn may be left over.
func TestWeightedRoundRobin(t *testing.T) {
	c := newCluster(t, 3)
	for name, s := range map[string]service{
		"list":   {Weights: map[*netlab.Host]int{c.Pods[0]: 3, c.Pods[1]: 1}},
		"slices": {SliceWeights: map[*netlab.Host]int{c.Pods[0]: 3, c.Pods[1]: 1}},
		"some":   {Weights: map[*netlab.Host]int{c.Pods[0]: 3}},
	} {
		s.Name, s.N, s.Pods = "web", 1, c.Pods[:2]
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.apply(s)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				got := count(names(t, 400, c.Client, network, s.clusterIP(family)))
				if n := got["pod-0"]; n < 298 || n > 302 || n+got["pod-1"] != 400 {
					t.Errorf("answers %v, want 300 to 100, and no more than 2 off", got)
				}
			})
		})
	}
}

// Weight 0 takes an endpoint out for new connections, and for no others.
func TestWeightZero(t *testing.T) {
	c := newCluster(t, 2)
	s := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.apply(s)
	flows := openFlows(t, c.Client, s.clusterIP)
	s.Pods = c.Pods
	s.Weights = map[*netlab.Host]int{c.Pods[0]: 0, c.Pods[1]: 1}
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		if diff := cmp.Diff(map[string]int{"pod-1": 20}, count(names(t, 20, c.Client, network, s.clusterIP(family)))); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	})
	for _, f := range flows {
		f.goesOn(t, "its endpoint has weight 0")
	}
	s.Weights[c.Pods[0]] = 1
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		roundRobin(t, names(t, 6, c.Client, network, s.clusterIP(family)), 2)
	})
}

// chiSquare returns by how much counts differ from an even distribution.
func chiSquare(counts map[string]int, endpoints, total int) float64 {
	expected := float64(total) / float64(endpoints)
	sum := float64(endpoints-len(counts)) * expected // those without any
	for _, n := range counts {
		d := float64(n) - expected
		sum += d * d / expected
	}
	return sum
}

// repeats returns how often an answer is that of the connection before.
func repeats(names []string) int {
	n := 0
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			n++
		}
	}
	return n
}

// 3.19: independent and even. With 3 degrees of freedom chi-square exceeds 30.7
// once in a million times; of 399 pairs of neighbours a quarter are equal, and
// fewer than 59 or more than 145 are about as rare.
func TestRandom(t *testing.T) {
	const endpoints, connections = 4, 400
	c := newCluster(t, endpoints)
	s := scheduled("random", c.Pods...)
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		got := names(t, connections, c.Client, network, s.clusterIP(family))
		if x := chiSquare(count(got), endpoints, connections); x > 30.7 {
			t.Errorf("chi-square of %v is %.1f", count(got), x)
		}
		if n := repeats(got); n < 59 || n > 145 {
			t.Errorf("%d of %d answers are those of the connection before", n, connections)
		}
	})
}

// By weight 3 to 1, pod-0 gets 300 of 400 with a variance of 75. Five standard
// deviations are exceeded less than once in a million times.
func TestWeightedRandom(t *testing.T) {
	c := newCluster(t, 2)
	s := scheduled("random", c.Pods...)
	s.Weights = map[*netlab.Host]int{c.Pods[0]: 3, c.Pods[1]: 1}
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		if n := count(names(t, 400, c.Client, network, s.clusterIP(family)))["pod-0"]; n < 256 || n > 344 {
			t.Errorf("pod-0 got %d of 400, want about 300", n)
		}
	})
}

// onePerClient checks that only the addresses of clients decide.
func onePerClient(t *testing.T, clients []*netlab.Host, network string, s service, f model.Family) {
	t.Helper()
	b := bind(t, clients, network, s.clusterIP(f))
	for range 3 {
		b.hold(t, "same client", network, s.clusterIP(f))
	}
	b.spread(t, s.Pods...)
}

// An endpoint out of three is missed by all of 48 clients once in a hundred
// million times.
func TestSourceHash(t *testing.T) {
	c := newCluster(t, 4)
	clients := append(c.crowd(48), c.Node, c.Pods[3])
	s := scheduled("source-hash", c.Pods[:3]...)
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		onePerClient(t, clients, network, s, family)
	})
}

// 3.40: two machines with other names and after other changes send 200 clients to the
// same endpoints.
func TestSourceHashOnTwoMachines(t *testing.T) {
	a := newCluster(t, 6)
	b := &cluster{netlab.TestLab(t, 6), t, filepath.Join(t.TempDir(), "services.yaml"), clusterCIDR}
	b.echo(b.Pods...)
	for _, pods := range [][]int{{0, 1, 2, 3}, {4, 1, 2, 3}, {4, 1, 2}, {4, 1, 2, 0}} {
		var hosts []*netlab.Host
		for _, i := range pods {
			hosts = append(hosts, a.Pods[i])
		}
		a.apply(scheduled("source-hash", hosts...))
	}
	ofA, ofB := scheduled("source-hash", a.Pods[1:]...), scheduled("source-hash", b.Pods[1:]...)
	slices.Reverse(ofB.Pods)
	a.apply(ofA)
	cmd := b.command("apply")
	b.write(ofB)
	cmd.Args[slices.Index(cmd.Args, nodeName)] = "another-node"
	b.mustRun(0, cmd)
	clientsA, clientsB := a.crowd(200), b.crowd(200)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		inA, inB := bind(t, clientsA, network, ofA.clusterIP(family)), bind(t, clientsB, network, ofB.clusterIP(family))
		inA.spread(t, ofA.Pods...)
		for i := range clientsA {
			if got, want := inB[clientsB[i]], inA[clientsA[i]]; got != want {
				t.Errorf("client %s: machine b chooses %s, machine a %s", clientsA[i].Address(family), got, want)
			}
		}
	})
}

// The annotation of a Service overrides the flag.
func TestSchedulerFlagAndAnnotation(t *testing.T) {
	c := newCluster(t, 3)
	clients := c.crowd(48)
	for _, test := range []struct{ flag, annotation, want string }{
		{"", "", "round-robin"},
		{"source-hash", "", "source-hash"},
		{"round-robin", "source-hash", "source-hash"},
		{"source-hash", "round-robin", "round-robin"},
		{"random", "source-hash", "source-hash"},
	} {
		t.Run(fmt.Sprintf("flag %q annotation %q", test.flag, test.annotation), func(t *testing.T) {
			c := c.in(t)
			if test.flag != "" {
				c.flags = append([]string{"--scheduler", test.flag}, clusterCIDR...)
			}
			s := scheduled(test.annotation, c.Pods...)
			c.apply(s)
			if test.want == "round-robin" {
				roundRobin(t, names(t, 9, c.Client, "tcp", s.clusterIP(model.IPv4)), 3)
			} else {
				onePerClient(t, clients, "tcp", s, model.IPv4)
			}
		})
	}
}

// An unknown name is reported, and the default is used.
func TestUnknownScheduler(t *testing.T) {
	c := newCluster(t, 3)
	s := scheduled("least-connection", c.Pods...)
	c.write(s)
	_, log := c.mustRunBoth(0, c.command("apply"))
	if !strings.Contains(log, "warning: ") || !strings.Contains(log, "default/web") || !strings.Contains(log, "least-connection") {
		t.Errorf("log does not warn of it:\n%s", log)
	}
	roundRobin(t, names(t, 9, c.Client, "tcp", s.clusterIP(model.IPv4)), 3)

	cmd := c.command("apply")
	cmd.Args = append(cmd.Args, "--scheduler", "least-connection")
	c.mustRun(2, cmd)
}

// Session affinity takes precedence over any scheduler: each client stays with
// its first endpoint.
func TestSchedulersWithAffinity(t *testing.T) {
	c := newCluster(t, 3)
	clients := c.crowd(24)
	for _, scheduler := range []string{"round-robin", "random", "source-hash", "maglev"} {
		t.Run(scheduler, func(t *testing.T) {
			c := c.in(t)
			s := scheduled(scheduler, c.Pods[:2]...)
			s.Affinity = long
			c.apply(s)
			b := bind(t, clients, "tcp", s.clusterIP(model.IPv4))
			b.spread(t, s.Pods...)
			s.Pods = c.Pods
			c.apply(s)
			b.hold(t, "5.8 an endpoint was added", "tcp", s.clusterIP(model.IPv4))
			c.apply()
		})
	}
}

// With policy Local, the scheduler applies to clients from outside as well.
func TestSchedulersWithLocalPolicy(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	clients := c.crowd(48)
	for _, scheduler := range []string{"round-robin", "random", "source-hash", "maglev"} {
		t.Run(scheduler, func(t *testing.T) {
			c := c.in(t)
			s := scheduled(scheduler, c.Pods[0], c.Pods[1], c.Remote[0])
			s.External = "Local"
			s.Weights = map[*netlab.Host]int{c.Pods[0]: 2}
			c.apply(s)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				b := bind(t, clients, network, s.externalIP(family))
				b.spread(t, c.Pods...)
				if n := len(b.of(c.Remote[0].Name)); n > 0 {
					t.Errorf("%d clients are on %s", n, c.Remote[0].Name)
				}
				for client, name := range b {
					if scheduler == "source-hash" {
						got := ask(t, client, network, s.externalIP(family))
						if got.Name != name || got.Client != client.Address(family) {
							t.Errorf("client %s: got %+v, want %s", client.IPv4, got, name)
						}
					}
				}
			})
		})
	}
}
