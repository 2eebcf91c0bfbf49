package apply

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// deniedClients returns n addresses, none of which is next to another one.
func deniedClients(n int, seed uint64) []netip.Prefix {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]netip.Prefix, n)
	for i := range out {
		a := netip.AddrFrom4([4]byte{byte(11 + r.IntN(80)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
		out[i] = netip.PrefixFrom(a, 32)
	}
	return out
}

// denying gives Services of three frontends a list of denied clients each.
func denying(services, clients int) map[model.ServiceName]model.ServiceState {
	all := workload.Services(max(services, 1000), 4)
	for i := range services {
		s := all[workload.ServiceName(i)].Service
		s.External = &model.External{
			LoadBalancerIPs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, byte(113 + i>>8), byte(i)})},
			ExternalIPs:     []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})},
		}
		s.Extras = &model.Extras{Sources: model.NewSources(false, nil, deniedClients(clients, uint64(i)))}
	}
	return all
}

// BenchmarkChangeSources changes one of 10,000 denied clients of a Service, or one of 10
// where 1,000 Services have as many; then one endpoint of the Service, which keeps its
// list, and one of a Service without a list.
func BenchmarkChangeSources(b *testing.B) {
	for _, size := range []struct {
		name              string
		services, clients int
	}{{"1x10", 1, 10}, {"1x10000", 1, 10_000}, {"1000x10", 999, 10}} {
		all := denying(size.services, size.clients)
		first, last := workload.ServiceName(0), workload.ServiceName(999)
		list := func(s model.ServiceState) [2]model.ServiceState {
			changed, extras := *s.Service, *s.Service.Extras
			denied := append([]netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}, extras.Sources.Denied[1:]...)
			extras.Sources = model.NewSources(false, nil, denied)
			changed.Extras = &extras
			return [2]model.ServiceState{{Service: &changed, Slices: s.Slices}, s}
		}
		b.Run(size.name+"/client", func(b *testing.B) { newServed(b, all).alternate(b, first, list(all[first])) })
		b.Run(size.name+"/endpoint", func(b *testing.B) {
			newServed(b, all).alternate(b, first, workload.ReplaceEndpoint(all[first]))
		})
		b.Run(size.name+"/others", func(b *testing.B) { newServed(b, all).alternate(b, last, workload.ReplaceEndpoint(all[last])) })
	}
}
