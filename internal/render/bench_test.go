package render_test

import (
	"fmt"
	"io"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// snapshot returns services with endpoints on other nodes.
func snapshot(services, endpoints int) *model.Snapshot {
	s := &model.Snapshot{}
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		s.Services = append(s.Services, &model.Service{
			Name:       model.ServiceName{Namespace: "default", Name: name},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		})
		slice := &model.EndpointSlice{
			Namespace: "default", Name: name + "-1", Service: name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		}
		for j := range endpoints {
			n := i*endpoints + j
			slice.Hosts = append(slice.Hosts, model.Host{
				Address: netip.AddrFrom4([4]byte{10, 128 + byte(n>>16), byte(n >> 8), byte(n)}),
				Ready:   true, Serving: true, Place: model.OnNode("node-2"),
			})
		}
		s.Slices = append(s.Slices, slice)
	}
	return s
}

// BenchmarkRender goes from the snapshot to the printed rules.
func BenchmarkRender(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{1000, 4}, {10000, 4}, {5006, 50}, {44128, 1}} {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			s := snapshot(size.services, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				rs := render.Render(model.Resolve(s, model.Config{NodeName: "node-1"}))
				if err := rs.Text(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// weightedSnapshot returns a Service with a ClusterIP, a load balancer address
// and an external IP, whose endpoints have weights.
func weightedSnapshot(endpoints int, weight func(i int) uint16) *model.Snapshot {
	s := snapshot(1, endpoints)
	s.Services[0].External = &model.External{
		LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.1")},
		ExternalIPs:     []netip.Addr{netip.MustParseAddr("203.0.113.2")},
	}
	for i := range s.Slices[0].Hosts {
		s.Slices[0].Hosts[i].Weight = weight(i)
	}
	return s
}

// BenchmarkWeights renders a Service whose weights have no common divisor.
func BenchmarkWeights(b *testing.B) {
	canary := func(i int) uint16 {
		if i == 0 {
			return 1
		}
		return 100
	}
	for name, s := range map[string]*model.Snapshot{
		"canary":      weightedSnapshot(501, canary),
		"alternating": weightedSnapshot(5000, func(i int) uint16 { return uint16(99 + i%2) }),
	} {
		b.Run(fmt.Sprintf("%s %d", name, len(s.Slices[0].Hosts)), func(b *testing.B) {
			b.ReportAllocs()
			elements := 0
			for b.Loop() {
				rs := render.Render(model.Resolve(s, model.Config{NodeName: "node-1"}))
				elements = len(rs.Tables[0].Set(nft.EndpointsMap).Elements)
			}
			b.ReportMetric(float64(elements), "elements")
		})
	}
}
