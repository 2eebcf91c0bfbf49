package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// FullVariants is the number of Services that together use every set and map.
const FullVariants = 4

// FullConfig is the configuration of a node whose tables have every constant set.
func FullConfig() model.Config {
	return model.Config{
		NodeName: "node-1", AnswerPing: true, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00:10:128::/48")},
		DetectLocal:        model.DetectClusterCIDR,
		NodePortAddresses:  []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("2001:db8::/32")},
		InterfaceAddresses: []netip.Addr{Addr("192.168.7.1"), Addr("2001:db8::1")},
		LoadBalancerCIDRs:  []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/64")},
	}
}

// FullNodes returns the nodes for it.
func FullNodes() []*model.Node {
	return []*model.Node{{Name: "node-1", Addresses: []netip.Addr{Addr("192.168.7.1"), Addr("2001:db8::1")}}}
}

// FullCIDRs returns the ServiceCIDRs for it.
func FullCIDRs() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/112")}
}

// Full returns a variant of a Service of both families that uses many kinds of elements.
// It shares no element with one of another number from 1 to 200, except of their
// lanes; affinity timeouts, limits and numbers of endpoints are its own, too.
func Full(name string, n byte, variant int) model.ServiceState {
	v6 := func(prefix string) netip.Addr { return Addr(fmt.Sprintf("%s::%x", prefix, n)) }
	s := &model.Service{
		Name: model.ServiceName{Namespace: "default", Name: name}, Created: int64(n),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, n}), v6("fd00:96")},
		External: &model.External{
			ExternalIPs:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, n}), v6("2001:db8:2")},
			LoadBalancerIPs: []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, n}), v6("2001:db8:1")},
		},
		Ports: []model.ServicePort{
			{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30000 + uint16(n)},
			{Name: "dns", Protocol: model.UDP, Port: 53, NodePort: 31000 + uint16(n)},
		},
	}
	limits := model.Limits{
		Connections: 100 + uint32(n), ConnectionsPerClient: 10 + uint32(n),
		Rate: model.Rate{Amount: 100 + uint32(n), Burst: 10}, RatePerClient: model.Rate{Amount: 10 + uint32(n), Burst: 5},
	}
	extras := &model.Extras{Limits: limits, Ranges: []model.PortRange{PortRange(model.UDP, 1000, 1999, 0), PortRange(model.TCP, 2000, 2999, 8080)}}
	own := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32), netip.PrefixFrom(v6("2001:db8:3"), 128)}
	switch variant {
	case 0:
		s.ExternalPolicy, s.AffinityTimeout, s.External.SourceRanges = model.PolicyLocal, time.Duration(1000+int(n))*time.Second, own
	case 1:
		s.AffinityTimeout = time.Duration(2000+int(n)) * time.Second
		extras.Sources = model.NewSources(true, own, []netip.Prefix{netip.PrefixFrom(own[0].Addr(), 31).Masked(), netip.PrefixFrom(own[1].Addr(), 127).Masked()})
	case 2:
		s.ClientAddresses, s.ExternalPolicy, extras.Limits = model.MasqueradeClientAddresses, model.PolicyLocal, model.Limits{}
	case 3: // has no endpoint on this node
		s.ExternalPolicy = model.PolicyLocal
	}
	s.Extras = extras
	return model.ServiceState{Service: s, Slices: fullSlices(name, n, variant < 3)}
}

func fullSlices(name string, n byte, local bool) (out []*model.EndpointSlice) {
	nodes := []string{"node-2", "node-1"}
	if !local {
		nodes[1] = "node-2"
	}
	for _, f := range model.Families {
		slice := &model.EndpointSlice{
			Namespace: "default", Name: name + "-" + f.String(), Service: name, Family: f,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53}},
		}
		for h := range 2 + int(n)%40 {
			a := netip.AddrFrom4([4]byte{10, 128, n, byte(h)})
			if f == model.IPv6 {
				a = Addr(fmt.Sprintf("fd00:10:128::%x:%x", n, h))
			}
			slice.Hosts = append(slice.Hosts, model.Host{Address: a, Ready: true, Serving: true, Place: model.OnNode(nodes[h%2])})
		}
		out = append(out, slice)
	}
	return out
}
