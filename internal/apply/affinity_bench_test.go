package apply

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// stickyServices returns Services of four endpoints with affinity.
func stickyServices(n int) map[model.ServiceName]model.ServiceState {
	all := workload.Services(n, 4)
	for _, s := range all {
		s.Service.AffinityTimeout = 3 * time.Hour
	}
	return all
}

// bindClients binds clients of a frontend to one of its endpoints.
func bindClients(b *testing.B, c *kernel.Conn, f model.Frontend, endpoint netip.AddrPort, clients int) {
	b.Helper()
	s, _, err := c.Set(nft.AffinityMap, model.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	const step = 20_000
	for first := 0; first < clients; first += step {
		p := &plan.Plan{}
		for i := first; i < min(first+step, clients); i++ {
			var client [4]byte
			binary.BigEndian.PutUint32(client[:], 100<<24+64<<16+uint32(i))
			p.Changes = append(p.Changes, plan.Change{Verb: plan.Add, Family: model.IPv4, Set: s, Timeout: 3 * time.Hour, New: &nft.Element{
				Key:   nft.Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port, Source: netip.AddrFrom4(client)},
				Value: nft.Value{Endpoint: endpoint},
			}})
		}
		if _, err := c.Commit(kernel.Prepared{Plan: p}, kernel.AnyGeneration); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStickyChange replaces an endpoint of a Service with affinity while
// clients are bound to another one, and reports the sweep that follows apart.
func BenchmarkStickyChange(b *testing.B) {
	for _, clients := range []int{0, 10_000, 250_000, 1_000_000} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			all := stickyServices(1000)
			s := newServed(b, all)
			busy := &s.routing.Routes[0]
			bindClients(b, s.Conn, busy.Frontend, busy.Inside().Endpoints[0].Address(), clients)
			idle := workload.ServiceName(7)
			s.alternate(b, idle, workload.ReplaceEndpoint(all[idle]))
			start := time.Now()
			if err := s.applier.Sweep(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(start).Milliseconds()), "sweep-ms")
			start = time.Now()
			if _, _, err := s.Read(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(start).Milliseconds()), "read-ms")
		})
	}
}
