package apply

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// nodePorts is a node with many addresses that serve NodePorts.
func nodePorts(addresses int) model.Config {
	c := model.Config{NodeName: "node-1", NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for i := range addresses {
		c.InterfaceAddresses = append(c.InterfaceAddresses, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	return c
}

// servicesWithNodePorts returns Services of one endpoint.
func servicesWithNodePorts(n int) map[model.ServiceName]model.ServiceState {
	all := workload.Services(n, 1)
	for i := range n {
		all[workload.ServiceName(i)].Service.Ports[0].NodePort = uint16(30000 + i)
	}
	return all
}

// BenchmarkNodePortAddresses serves 300 NodePorts on 1,000 addresses, from the
// Services to the kernel's answer.
func BenchmarkNodePortAddresses(b *testing.B) {
	c, all := nodePorts(1000), servicesWithNodePorts(300)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := newSandbox(b)
		b.StartTimer()
		router := model.NewRouter()
		router.Configure(c, nil, nil)
		router.SetServices(all)
		rules := render.Render(router.Routing())
		plan, err := s.applier.Apply(nft.FromNothing(rules))
		if err != nil {
			b.Fatal(err)
		}
		_, frontends := router.Len()
		b.ReportMetric(float64(frontends), "frontends")
		b.ReportMetric(float64(len(plan.Changes)), "changes")
	}
}

// BenchmarkNodePortAddress adds one more address, and takes it away again.
func BenchmarkNodePortAddress(b *testing.B) {
	s, router := newSandbox(b), model.NewRouter()
	both := [2]model.Config{nodePorts(1001), nodePorts(1000)}
	router.Configure(both[1], nil, nil)
	router.SetServices(servicesWithNodePorts(300))
	rules, delta := render.Start(router.Routing())
	if _, err := s.applier.Apply(delta); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changes, base := router.Configure(both[i%2], nil, nil)
		if base {
			b.Fatal("everything would have to be rendered")
		}
		plan, err := s.applier.Apply(rules.Change(changes, router.NodePortAddresses()))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(plan.Changes)), "changes/op")
	}
}
