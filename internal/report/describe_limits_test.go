package report

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/show"
)

// TestLimits: objects and rules say the same about limits, and what they have dropped, or had no room for (4.88), is
// summed up over the frontends (4.92).
func TestLimits(t *testing.T) {
	s := randomWorld(rand.New(rand.NewPCG(3, 4)))
	web := s.Services[0]
	web.External = &model.External{ExternalIPs: web.ClusterIPs[:0:0]}
	web.Ports[0].NodePort = 30080
	s.Nodes[0].Addresses = append(s.Nodes[0].Addresses, web.ClusterIPs[0].Next())
	web.Extras = &model.Extras{Limits: model.Limits{
		Connections: 1000, ConnectionsPerClient: 1, Rate: model.Rate{Amount: 100, Burst: 100}, RatePerClient: model.Rate{Amount: 1, Burst: 3, Unit: model.PerHour},
	}}
	objects, rules := views(s)
	inRules := ofRules(rules, model.ServiceName{Namespace: "shop", Name: "web"})
	if diff := cmp.Diff(objects.Limits, inRules.Limits); diff != "" {
		t.Errorf("objects and rules differ (-objects +rules):\n%s", diff)
	}
	kernel := &fullKernel{}
	for p, f := range own(objects) {
		kernel.drops = append(kernel.drops, counters.Limit{Frontend: p.Frontend(f).ID(), Kind: model.LimitRate, Packets: uint64(len(kernel.drops) + 1)})
		kernel.counts = append(kernel.counts, counters.Limit{Frontend: p.Frontend(f).ID(), Kind: model.LimitClientConnections, Packets: 4})
	}
	kernel.counts = append(kernel.counts, counters.Limit{Frontend: model.Frontend{Protocol: model.TCP, Port: 1}.ID(), Kind: model.LimitClientRate, Packets: 1})
	if err := addLimitCounts(objects, kernel); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := show.Description(&text, objects, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	const want = `limits            1 new connection per hour per client (burst 3) to each address and port; 0 dropped
                  100 new connections per second to each address and port; 3 dropped
                  1 connection per client to each address and port; 0 dropped; 8 passed without it while it was full
                  1000 connections to each address and port; 0 dropped
`
	if !strings.Contains(text.String(), want) {
		t.Errorf("limits are missing in:\n%s", &text)
	}
	if got := objects.Ports[0].Frontends[1].Dropped; got["rate"] != 2 {
		t.Errorf("the second frontend has %v, want 2 of the rate", got)
	}
}

// TestLocalhostIsNotCounted: connections to a NodePort on localhost are counted at the
// frontend that the listener connects to (6.22).
func TestLocalhostIsNotCounted(t *testing.T) {
	s := &api.Description{Ports: []api.DescribedPort{{Protocol: "tcp", Frontends: []api.DescribedFrontend{{Address: "192.0.2.1:30080"}, {Address: "127.0.0.1:30080"}, {Address: "[::1]:30080"}}}}}
	addConnections(s, nil)
	for i, f := range s.Ports[0].Frontends {
		if counted := f.Connections != nil; counted != (i == 0) {
			t.Errorf("%s counted: %t", f.Address, counted)
		}
	}
}
