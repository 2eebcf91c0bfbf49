package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	nodeName = "node-1"
	// nodes is the number of nodes that endpoints are spread over.
	nodes = 100
	// minServices leaves some that have no endpoint on this node.
	minServices = 50
	// maxEndpoints is half of what fits into the addresses of pods: changes
	// need others.
	maxEndpoints = 1 << 22
	// nodePorts is the number of Services that can have a NodePort, from
	// firstNodePort on.
	nodePorts     = 40_000
	firstNodePort = 20_000
)

// world has the objects of the source: the Services of a scenario with their slices,
// as the API server would send them.
type world struct {
	scenario
	services  map[model.ServiceName]model.ServiceState
	names     []string // of the nodes
	addresses int      // of pods that were given out
	// The source gives the same objects while they do not change.
	nodes []*model.Node
	cidrs []netip.Prefix
}

func newWorld(s scenario) *world {
	w := &world{
		scenario: s, services: make(map[model.ServiceName]model.ServiceState, s.Services),
		nodes: []*model.Node{{
			Name: nodeName, Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")},
		}},
		cidrs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	}
	for i := range nodes {
		w.names = append(w.names, fmt.Sprintf("node-%d", i))
	}
	for i := range s.Services {
		state := w.newState(i)
		w.services[state.Service.Name] = state
	}
	return w
}

func serviceName(i int) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: "service-" + strconv.Itoa(i)}
}

// newState returns service i with new endpoints.
func (w *world) newState(i int) model.ServiceState {
	name := serviceName(i)
	s := &model.Service{
		Name: name, ClusterIPs: []netip.Addr{address(10, 96, i)},
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	if w.Exposed && i%4 == 0 {
		expose(s, i)
		s.AffinityTimeout = 3 * time.Hour
	}
	hosts := make([]model.Host, w.Endpoints)
	for j := range hosts {
		hosts[j] = w.newHost(i + j)
	}
	return model.ServiceState{Service: s, Slices: []*model.EndpointSlice{{
		Namespace: name.Namespace, Name: name.Name + "-x7k2p", Service: name.Name, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}, Hosts: hosts,
	}}}
}

// expose makes service i a load balancer with a NodePort, if there is one left
// for it.
func expose(s *model.Service, i int) {
	s.External = &model.External{LoadBalancerIPs: []netip.Addr{address(198, 18, i)}}
	if i < nodePorts {
		s.Ports[0].NodePort = uint16(firstNodePort + i)
	}
}

// newHost returns an endpoint on a node with an address that nothing had
// before.
func (w *world) newHost(node int) model.Host {
	w.addresses++
	return model.Host{Address: address(10, 128, w.addresses), Ready: true, Serving: true, Place: model.OnNode(w.names[node%nodes])}
}

// address returns an address of a network that starts with a.b.0.0.
func address(a, b byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)})
}

// update returns an update with the present state of some services.
func (w *world) update(services map[model.ServiceName]model.ServiceState) *model.Update {
	return &model.Update{Services: services, Nodes: w.nodes, ServiceCIDRs: w.cidrs}
}

// snapshot returns all that is known.
func (w *world) snapshot() *model.Update {
	all := make(map[model.ServiceName]model.ServiceState, len(w.services))
	for name, s := range w.services {
		all[name] = s
	}
	return w.update(all)
}

// set gives a service another state, none if it has no Service, and returns
// the update that says so.
func (w *world) set(i int, s model.ServiceState) *model.Update {
	name := serviceName(i)
	if w.services[name] = s; s.Service == nil {
		delete(w.services, name)
	}
	return w.update(map[model.ServiceName]model.ServiceState{name: s})
}

// withHosts returns the state with other endpoints; its objects are not
// changed.
func withHosts(s model.ServiceState, hosts []model.Host) model.ServiceState {
	slice := *s.Slices[0]
	slice.Hosts = hosts
	return model.ServiceState{Service: s.Service, Slices: []*model.EndpointSlice{&slice}}
}

// frontends returns the number of frontends of service i.
func (w *world) frontends(i int) int {
	s := w.services[serviceName(i)].Service
	n := len(s.ClusterIPs)
	if s.External != nil {
		n += len(s.External.LoadBalancerIPs)
	}
	if s.Ports[0].NodePort != 0 {
		n++
	}
	return n
}

func hosts(s model.ServiceState) []model.Host { return s.Slices[0].Hosts }

// remote returns the first endpoint of a state that is on another node, or -1.
func remote(s model.ServiceState) int {
	return slices.IndexFunc(hosts(s), func(h model.Host) bool { return h.Place.Node() != nodeName })
}

// config is the configuration of a node in a cluster as kubeadm makes it.
func config() model.Config {
	return model.Config{NodeName: nodeName, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}
}
