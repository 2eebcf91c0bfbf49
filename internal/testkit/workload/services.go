package workload

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

func Addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func AddrPort(a string, port uint16) netip.AddrPort { return netip.AddrPortFrom(Addr(a), port) }

// Sample returns a ruleset of both families with something of everything.
func Sample() *nft.Ruleset {
	w := NewWorld(7)
	for range 40 {
		w.Step()
	}
	w.Config.Observe = model.Observe{}
	w.Cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/112")}
	return w.Render()
}

// Scenario returns the ruleset of services with endpoints on other nodes. The
// endpoints of service 0 start at a given number.
func Scenario(services, endpoints, first int) *nft.Ruleset {
	s := &model.Snapshot{}
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		s.Services = append(s.Services, &model.Service{
			Name:       model.ServiceName{Namespace: "default", Name: name},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		})
		slice := &model.EndpointSlice{
			Namespace: "default", Name: name, Service: name, Family: model.IPv4,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		}
		for j := range endpoints {
			n := i*endpoints + j
			if i == 0 {
				n = -1 - first - j
			}
			slice.Hosts = append(slice.Hosts, model.Host{
				Address: netip.AddrFrom4([4]byte{10, 128 + byte(n>>16)&0x7f, byte(n >> 8), byte(n)}),
				Ready:   true, Serving: true, Place: model.OnNode("node-2"),
			})
		}
		s.Slices = append(s.Slices, slice)
	}
	return render.Render(model.Resolve(s, model.Config{NodeName: "node-1"}))
}

// Services returns the Services of Scenario, by name.
func Services(n, endpoints int) map[model.ServiceName]model.ServiceState {
	out := make(map[model.ServiceName]model.ServiceState, n)
	for i := range n {
		name := fmt.Sprintf("service-%d", i)
		s := &model.Service{
			Name:       model.ServiceName{Namespace: "default", Name: name},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}
		out[s.Name] = model.ServiceState{Service: s, Slices: []*model.EndpointSlice{endpointsOf(name, i*endpoints, endpoints)}}
	}
	return out
}

// endpointsOf returns a slice with some endpoints on another node.
func endpointsOf(service string, first, n int) *model.EndpointSlice {
	s := &model.EndpointSlice{
		Namespace: "default", Name: service, Service: service, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for i := first; i < first+n; i++ {
		s.Hosts = append(s.Hosts, model.Host{
			Address: netip.AddrFrom4([4]byte{10, 128 + byte(i>>16)&0x7f, byte(i >> 8), byte(i)}),
			Ready:   true, Serving: true, Place: model.OnNode("node-2"),
		})
	}
	return s
}

// ReplaceEndpoint returns a Service with another first endpoint, and the
// original.
func ReplaceEndpoint(s model.ServiceState) [2]model.ServiceState {
	other := *s.Slices[0]
	other.Hosts = append(other.Hosts[:0:0], other.Hosts...)
	other.Hosts[0].Address = netip.MustParseAddr("10.255.0.1")
	return [2]model.ServiceState{{Service: s.Service, Slices: []*model.EndpointSlice{&other}}, s}
}

// Sticky returns the ruleset of one NodePort with affinity. Endpoints are named
// by their last byte and, behind a colon, by attributes: L on this node, and
// the zone that the hints name.
func Sticky(policy model.Policy, timeout time.Duration, endpoints string) *nft.Ruleset {
	slice := &model.EndpointSlice{
		Namespace: "default", Name: "web-1", Service: "web", Family: model.IPv4,
		Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
	}
	for _, field := range strings.Fields(endpoints) {
		name, attributes, _ := strings.Cut(field, ":")
		h := model.Host{Address: netip.MustParseAddr("10.128.0." + name), Ready: true, Serving: true}
		node, zone := "node-2", attributes
		if rest, local := strings.CutPrefix(attributes, "L"); local {
			node, zone = "node-1", rest
		}
		if h.Place = model.OnNode(node); zone != "" {
			h.Place = model.NewPlace(node, zone, []string{zone}, nil)
		}
		slice.Hosts = append(slice.Hosts, h)
	}
	s := &model.Snapshot{
		Nodes: []*model.Node{{Name: "node-1", Zone: "a", Addresses: []netip.Addr{Addr("192.168.7.1")}}},
		Services: []*model.Service{{
			Name: model.ServiceName{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{Addr("10.96.0.1")},
			Ports:          []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30080}},
			ExternalPolicy: policy, AffinityTimeout: timeout,
		}, { // keeps the affinity map in place
			Name: model.ServiceName{Namespace: "default", Name: "other"}, ClusterIPs: []netip.Addr{Addr("10.96.0.2")},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, AffinityTimeout: time.Hour,
		}},
		Slices: []*model.EndpointSlice{slice, {
			Namespace: "default", Name: "other-1", Service: "other", Family: model.IPv4, Ports: slice.Ports,
			Hosts: []model.Host{{Address: Addr("10.128.0.99"), Ready: true}},
		}},
	}
	return render.Render(model.Resolve(s, model.Config{NodeName: "node-1"}))
}

// Scaled is the ruleset of one service with that many endpoints; each number
// has a lane of its own.
func Scaled(endpoints int) *nft.Ruleset { return Scenario(1, endpoints, 0) }
