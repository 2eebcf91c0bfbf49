package test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// flow is an open connection, or a datagram socket in use.
type flow struct {
	*netlab.Flow
	network string
	family  model.Family
	peer    string // the endpoint that answered first
}

// openFlows opens a flow per protocol and family.
func openFlows(t *testing.T, from *netlab.Host, to func(model.Family) netip.AddrPort) []flow {
	t.Helper()
	return openFlowsFor(t, from, to, 0)
}

// openFlowsFor opens flows that wait for an answer only so long.
func openFlowsFor(t *testing.T, from *netlab.Host, to func(model.Family) netip.AddrPort, wait time.Duration) []flow {
	t.Helper()
	var flows []flow
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			f, err := from.Open(network, to(family), wait)
			if err != nil {
				t.Fatalf("%s %s: %v", network, family, err)
			}
			t.Cleanup(func() { f.Close() })
			answer, err := f.Ask()
			if err != nil {
				t.Fatalf("%s %s: %v", network, family, err)
			}
			flows = append(flows, flow{f, network, family, answer.Name})
		}
	}
	return flows
}

// goesOn checks that a flow is still with the endpoint that it began with.
func (f flow) goesOn(t *testing.T, after string) {
	t.Helper()
	if got, err := f.Ask(); err != nil || got.Name != f.peer {
		t.Errorf("%s %s, %s: got %v, %v, want an answer of %s", f.network, f.family, after, got, err, f.peer)
	}
}

// 3.20: rules decide about new connections alone, whatever happens to the
// service.
func TestFlowsSurviveUpdates(t *testing.T) {
	c := newWideCluster(t, 3, 1)
	web := func(pods ...*netlab.Host) service { return service{Name: "web", N: 1, Pods: pods} }
	api := func(pods ...*netlab.Host) service { return service{Name: "api", N: 2, Pods: pods} }
	c.apply(web(c.Pods[0]))
	flows := openFlows(t, c.Client, web().clusterIP)
	for _, step := range []struct {
		name     string
		services []service
	}{
		{"another service appears", []service{web(c.Pods[0]), api(c.Pods[0], c.Pods[1])}},
		{"its endpoints are replaced", []service{web(c.Pods[0]), api(c.Pods[2])}},
		{"its endpoints go away", []service{web(c.Pods[0]), api()}},
		{"it goes away", []service{web(c.Pods[0])}},
		{"endpoints are added", []service{web(c.Pods...)}},
		{"endpoints are removed", []service{web(c.Pods[0])}},
		{"policies become Local", []service{{Name: "web", N: 1, Pods: c.Pods[1:], Internal: "Local", External: "Local"}}},
		{"no endpoint is local", []service{{Name: "web", N: 1, Pods: c.Remote, Internal: "Local", External: "Local"}}},
		{"affinity is turned on", []service{{Name: "web", N: 1, Pods: c.Pods[1:], Affinity: long}}},
		{"the scheduler is another", []service{scheduled("random", c.Pods[1:]...)}},
		{"its weight is 0", []service{{Name: "web", N: 1, Pods: c.Pods, Weights: map[*netlab.Host]int{c.Pods[0]: 0}}}},
		{"it is another proxy's", []service{labelled("web", 1, "theirs", c.Pods...)}},
		{"no endpoint is left", []service{web()}},
		{"the service goes away", nil},
		{"the service is back", []service{web(c.Pods[0])}},
	} {
		c.apply(step.services...)
		for _, f := range flows {
			f.goesOn(t, step.name)
		}
	}
}

// A TCP connection stays with its endpoint when new ones go elsewhere.
func TestConnectionSurvivesReplacedEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.apply(web)
	flows := openFlows(t, c.Client, web.clusterIP)
	web.Pods = c.Pods[1:]
	c.apply(web)
	for _, f := range flows {
		if f.network == "tcp" {
			f.goesOn(t, "endpoint replaced")
		}
	}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		if got := ask(t, c.Client, network, web.clusterIP(family)).Name; got != c.Pods[1].Name {
			t.Errorf("got %s, want the new endpoint", got)
		}
	})
}

// New connections follow every update immediately.
func TestUpdatesTakeEffect(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1}
	for _, pods := range [][]*netlab.Host{c.Pods, c.Pods[1:], {c.Pods[2], c.Pods[0]}, c.Pods[:1], nil, c.Pods} {
		web.Pods = pods
		c.apply(web)
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			if len(pods) == 0 {
				refused(t, []*netlab.Host{c.Client}, network, web.clusterIP(family))
				return
			}
			roundRobin(t, names(t, 2*len(pods), c.Client, network, web.clusterIP(family)), len(pods))
		})
	}
}
