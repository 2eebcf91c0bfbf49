package apply

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// restricted returns the ruleset of load balancer Services, each with these
// addresses and ports and with the source ranges that ranges returns for it.
func restricted(services, addresses, ports int, ranges func(service int) []netip.Prefix) *nft.Ruleset {
	s := &model.Snapshot{}
	for i := range services {
		svc := &model.Service{Name: workload.ServiceName(i), External: &model.External{SourceRanges: ranges(i)}}
		svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", i))}
		for j := range addresses {
			n := i*addresses + j
			svc.External.LoadBalancerIPs = append(svc.External.LoadBalancerIPs, netip.AddrFrom4([4]byte{203, 0, byte(n >> 8), byte(n)}),
				netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", n)))
		}
		slice := &model.EndpointSlice{
			Namespace: "default", Name: svc.Name.Name, Service: svc.Name.Name, Family: model.IPv4,
			Hosts: []model.Host{{Address: workload.Addr("10.128.0.1"), Ready: true, Serving: true, Place: model.OnNode("node-2")}},
		}
		for j := range ports {
			name := fmt.Sprintf("port-%d", j)
			svc.Ports = append(svc.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(80 + j)})
			slice.Ports = append(slice.Ports, model.EndpointPort{Name: name, Protocol: model.TCP, Port: 8080})
		}
		s.Services, s.Slices = append(s.Services, svc), append(s.Slices, slice)
	}
	return render.Render(model.Resolve(s, model.Config{NodeName: "node-1"}))
}

// everyService gives all Services the same source ranges.
func everyService(ranges ...string) func(int) []netip.Prefix {
	out := make([]netip.Prefix, len(ranges))
	for i, r := range ranges {
		out[i] = netip.MustParsePrefix(r)
	}
	return func(int) []netip.Prefix { return out }
}

// TestRangesGiveWay: 4.30. Ranges are replaced by overlapping ones, in
// more elements than fit in one message. The kernel refuses an element that
// starts or ends in an older one, and takes the deletion of the older one for
// that of a newer one around it.
func TestRangesGiveWay(t *testing.T) {
	var halves, pairs []string
	for i := range 220 {
		halves = append(halves, fmt.Sprintf("20.%d.%d.0/24", i/64, 4*i%256), fmt.Sprintf("20.%d.%d.0/24", i/64, 4*i%256+1))
		pairs = append(pairs, fmt.Sprintf("20.%d.%d.0/23", i/64, 4*i%256))
	}
	for _, c := range []struct {
		name                       string
		services, addresses, ports int
		before, after              []string
	}{
		{"one list of many ranges", 1, 2, 3, halves, pairs},
		{"one range of many Services, same start", 1400, 1, 1, []string{"10.0.0.0/16"}, []string{"10.0.0.0/15"}},
		{"one range of many Services, same end", 1400, 1, 1, []string{"10.1.0.0/16"}, []string{"10.0.0.0/15"}},
		{"one range of many Services, enclosed", 1400, 1, 1, []string{"10.1.0.0/16"}, []string{"10.0.0.0/8"}},
		{"one range of many Services, IPv6", 1400, 1, 1, []string{"fd01::/16"}, []string{"fd00::/8"}},
	} {
		for _, way := range []string{"comparison", "change"} {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				s := newSandbox(t)
				ranges := c.before
				for range 3 {
					desired := restricted(c.services, c.addresses, c.ports, everyService(ranges...))
					s.applyRanges(t, way, desired)
					ranges = c.after
				}
			})
		}
	}
}

// applyRanges brings the kernel to a ruleset in one of several ways, and checks
// that it holds the ranges then.
func (s *sandbox) applyRanges(t *testing.T, way string, desired *nft.Ruleset) {
	t.Helper()
	before, _, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	switch {
	case way == "change" && len(before.Tables) > 0:
		_, err = s.applier.Apply(nft.Delta{Before: before, After: workload.Clone(desired)})
	default:
		_, err = s.applier.Apply(nft.FromNothing(desired))
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(t.Output(), "applied in %v\n", time.Since(start))
	after, _, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range desired.Tables {
		want, got := table.Set(nft.SourceRangesSet), after.Table(table.Family).Set(nft.SourceRangesSet)
		if !slices.Equal(want.Elements, got.Elements) {
			t.Fatalf("the kernel has %d ranges that differ from the %d wanted, for example %s and %s",
				len(got.Elements), len(want.Elements), got.KeyText(got.Elements[0].Key), want.KeyText(want.Elements[0].Key))
		}
	}
	if p := plan.Diff(after, plan.Settle(after, desired)); !p.Empty() {
		t.Fatalf("plan after it was carried out: %s", p.Summary())
	}
}

// TestRandomRanges: 4.30. It changes more than 2,000 ranges step by step:
// prefixes that enclose each other, overlap or are adjacent.
func TestRandomRanges(t *testing.T) {
	const services = 110
	r := rand.New(rand.NewPCG(19, 0))
	lists := make(map[model.Family][][]netip.Prefix)
	for _, f := range model.Families {
		for range services {
			lists[f] = append(lists[f], randomRanges(r, f))
		}
	}
	s := newSandbox(t)
	for step := range 9 {
		desired := restricted(services, 2, 1, func(i int) []netip.Prefix { return slices.Concat(lists[model.IPv4][i], lists[model.IPv6][i]) })
		for _, table := range desired.Tables {
			if n := len(table.Set(nft.SourceRangesSet).Elements); n < 2000 {
				t.Fatalf("%d ranges of %s, want 2,000", n, table.Family)
			}
		}
		s.applyRanges(t, []string{"comparison", "change"}[step%2], desired)
		changed, families := r.IntN(4), model.Families[:]
		if step == 4 { // in several messages; IPv6 would take the kernel seconds
			changed, families = services, model.Families[:1]
		}
		for i := range changed {
			for _, f := range families {
				lists[f][(i+r.IntN(3))%services] = randomRanges(r, f)
			}
		}
	}
}

// randomRanges returns prefixes of one family. They are of few bits, so that
// they meet.
func randomRanges(r *rand.Rand, f model.Family) (out []netip.Prefix) {
	for range 12 {
		bits, a, b := 4+r.IntN(7), byte(r.IntN(256)), byte(r.IntN(256))
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b}), bits)
		if f == model.IPv6 {
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, a, b}), 16+bits)
		}
		out = append(out, p.Masked())
	}
	return out
}
