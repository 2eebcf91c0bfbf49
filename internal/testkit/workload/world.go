package workload

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// WorldSize is the number of services that there may be.
const WorldSize = 12

// World makes random snapshots: a few services that come, go and change.
type World struct {
	R        *rand.Rand
	lists    *rand.Rand // for lists of clients, of their own so that they change nothing else
	observe  *rand.Rand // likewise for refused connections
	services map[int]*model.Service
	slices   map[int][]*model.EndpointSlice
	Cidrs    []netip.Prefix
	Config   model.Config
}

func NewWorld(seed uint64) *World {
	w := &World{
		services: make(map[int]*model.Service),
		slices:   make(map[int][]*model.EndpointSlice),
		Config:   model.Config{NodeName: "node-1", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}},
	}
	w.Reseed(seed)
	return w
}

// Reseed makes the further changes depend on a seed alone, and not on those before.
func (w *World) Reseed(seed uint64) {
	w.R = rand.New(rand.NewPCG(seed, 0))
	w.lists = rand.New(rand.NewPCG(seed, 1))
	w.observe = rand.New(rand.NewPCG(seed, 2))
}

// Step changes something and returns the ruleset for the result.
func (w *World) Step() *nft.Ruleset {
	i := w.R.IntN(WorldSize)
	switch w.R.IntN(7) {
	case 6:
		w.Config.DetectLocal = model.DetectMode(w.R.IntN(4))
		w.Config.PodInterface = []string{"", "cali", "cbr0-with-a-very-long-name"}[w.R.IntN(3)]
		w.Config.MasqueradeAll = w.R.IntN(2) == 0
		w.Config.Scheduler = model.Scheduler(w.R.IntN(4))
		w.Config.Counters = w.R.IntN(2) == 0
		w.Config.EndpointCounters = w.R.IntN(4) == 0
		w.Config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("127.0.0.0/8")}[:3*w.R.IntN(2)]
		w.Config.AnswerPing = w.R.IntN(2) == 0
		w.Config.Observe = model.Observe{Level: model.ObserveRefusals, Group: 7}
		if w.observe.IntN(2) == 0 {
			w.Config.Observe = model.Observe{}
		}
		w.Config.LoadBalancerCIDRs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}[:2*w.R.IntN(2)]
		w.Move()
	case 0:
		w.Remove(i)
	case 1:
		w.Cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fd00:10:96::/112")}[:w.R.IntN(4)]
	default:
		w.Replace(i)
	}
	return w.Render()
}

// Move gives the interfaces of the node other addresses.
func (w *World) Move() {
	w.Config.InterfaceAddresses = []netip.Addr{netip.MustParseAddr("2001:db8::1")}
	for range w.R.IntN(3) {
		w.Config.InterfaceAddresses = append(w.Config.InterfaceAddresses, netip.AddrFrom4([4]byte{192, 0, 2, byte(w.R.IntN(4))}))
	}
}

func (w *World) Remove(i int) {
	delete(w.services, i)
	delete(w.slices, i)
}

func (w *World) Replace(i int) {
	w.services[i] = w.service(i)
	w.slices[i] = []*model.EndpointSlice{w.slice(i, model.IPv4), w.slice(i, model.IPv6)}
}

func (w *World) Nodes() []*model.Node {
	return []*model.Node{{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("2001:db8::1")}}}
}

func (w *World) Render() *nft.Ruleset { return render.Render(w.Resolve()) }

// Resolve returns the routing of a node for the world.
func (w *World) Resolve() *model.Routing { return model.Resolve(w.Snapshot(), w.Config) }

// Snapshot returns the objects of the world.
func (w *World) Snapshot() *model.Snapshot {
	s := &model.Snapshot{ServiceCIDRs: w.Cidrs}
	for i, svc := range w.services {
		s.Services = append(s.Services, svc)
		s.Slices = append(s.Slices, w.slices[i]...)
	}
	s.Nodes = w.Nodes()
	return s
}

func ServiceName(i int) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
}

func (w *World) service(i int) *model.Service {
	s := &model.Service{
		Name:    ServiceName(i),
		Created: int64(i),
		Ports: []model.ServicePort{
			{Name: "http", Protocol: model.TCP, Port: 80},
			{Name: "dns", Protocol: model.Protocols[w.R.IntN(3)], Port: 53, NodePort: uint16(30000 + w.R.IntN(3))},
		}[:1+w.R.IntN(2)],
	}
	var external model.External
	if w.R.IntN(2) == 0 {
		s.ExternalPolicy = model.PolicyLocal
		external.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%d", i))}
		external.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("fd00::/8")}[:w.R.IntN(4)]
	}
	if w.R.IntN(3) == 0 {
		s.AffinityTimeout = []time.Duration{time.Second, 90 * time.Second, 3 * time.Hour, 24 * time.Hour}[w.R.IntN(4)]
	}
	s.Scheduler = model.Scheduler(w.R.IntN(4))
	if s.Scheduler == model.SourceHash && i == 3 { // one: such a frontend has hundreds of elements
		s.Scheduler = []model.Scheduler{model.Maglev, model.MaglevPort}[len(s.Ports)-1]
		s.Extras = &model.Extras{MaglevSize: model.MaglevSizes[0]}
	}
	if w.R.IntN(8) > 0 {
		s.ClusterIPs = append(s.ClusterIPs, netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}))
	}
	if w.R.IntN(3) == 0 {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%d", i)))
	}
	if w.R.IntN(3) == 0 {
		external.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(w.R.IntN(3))})}
	}
	s.External = &external
	extras := *s.Extra()
	if w.lists.IntN(3) == 0 {
		extras.Sources = model.NewSources(w.lists.IntN(2) == 0, w.clients(), w.clients())
	}
	extras.Ranges = portRanges(w.lists.IntN(16))
	if w.lists.IntN(4) == 0 {
		extras.Limits = limits(byte(w.lists.IntN(256)))
	}
	s.ClientAddresses = model.ClientAddresses(w.lists.IntN(4) % 3)
	s.Extras = &extras
	return s
}

// clients returns ranges of clients that differ, overlap or repeat.
func (w *World) clients() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(clientRanges), func(netip.Prefix) bool { return w.lists.IntN(3) > 0 })
}

func (w *World) slice(i int, f model.Family) *model.EndpointSlice {
	s := &model.EndpointSlice{
		Namespace: "default", Name: fmt.Sprintf("slice-%d-%s", i, f), Service: fmt.Sprintf("service-%d", i), Family: f,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53}},
	}
	for range w.R.IntN(7) {
		a := netip.AddrFrom4([4]byte{10, 128, byte(i), byte(w.R.IntN(20))})
		if f == model.IPv6 {
			a = netip.MustParseAddr(fmt.Sprintf("fd00:10:128::%d", w.R.IntN(20)))
		}
		s.Hosts = append(s.Hosts, model.Host{Address: a, Ready: w.R.IntN(5) > 0, Serving: true, Place: model.OnNode([]string{"node-1", "node-2"}[w.R.IntN(2)]), Weight: uint16(w.R.IntN(4))})
	}
	return s
}

// States returns Services with their slices.
func (w *World) States(of ...int) map[model.ServiceName]model.ServiceState {
	out := make(map[model.ServiceName]model.ServiceState)
	for _, i := range of {
		out[ServiceName(i)] = model.ServiceState{Service: w.services[i], Slices: w.slices[i]}
	}
	return out
}

func (w *World) All() []int {
	return upTo(WorldSize)
}

// upTo returns the numbers below n.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
