package workload

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

const (
	Traits  = 26 // of a Service with its slices, each one byte
	Rivalry = 5  // numbers of Services
	farHost = 2  // the hosts of a second slice start at this one of the first
)

// Rivals is a set of Services that compete for addresses, node ports and
// endpoints. Each is a pure function of its number and its traits, so that
// changing a byte changes one property of one Service.
type Rivals struct {
	Specs  [Rivalry][Traits]byte
	Config model.Config
	zone   string
	Cidrs  []netip.Prefix
}

func NewRivals() *Rivals {
	return &Rivals{Config: model.Config{NodeName: "node-1", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}}
}

// Configure changes the settings that all Services share.
func (c *Rivals) Configure(r *rand.Rand) {
	c.Config.DetectLocal = model.DetectMode(r.IntN(4))
	c.Config.PodInterface = []string{"", "cali", "cbr0-with-a-very-long-name"}[r.IntN(3)]
	c.Config.MasqueradeAll = r.IntN(2) == 1
	c.Config.Scheduler = model.Scheduler(r.IntN(4))
	c.Config.Counters = r.IntN(2) == 1
	c.zone = []string{"", "za", "zb"}[r.IntN(3)]
	c.Cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("10.100.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}[:r.IntN(4)]
	c.Config.NodePortAddresses = [][]netip.Prefix{nil, {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/32")}}[r.IntN(2)]
	c.Config.AnswerPing = r.IntN(2) == 1
	c.Config.LoadBalancerCIDRs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.1/32"), netip.MustParsePrefix("2001:db8:1::/64")}[:r.IntN(4)]
	c.Move(r)
}

// Move gives the interfaces of the node other addresses, among them ClusterIPs and
// load balancer IPs.
func (c *Rivals) Move(r *rand.Rand) {
	c.Config.InterfaceAddresses = nil
	for _, a := range []string{"192.168.7.1", "198.51.100.1", "203.0.113.1", "10.96.0.2", "2001:db8::1", "2001:db8:1::1"} {
		if r.IntN(2) == 1 {
			c.Config.InterfaceAddresses = append(c.Config.InterfaceAddresses, Addr(a))
		}
	}
}

func (c *Rivals) Nodes() []*model.Node {
	return []*model.Node{
		{Name: "node-2", Addresses: []netip.Addr{Addr("192.168.7.2")}},
		{Name: "node-1", Zone: c.zone, Addresses: []netip.Addr{Addr("192.168.7.1"), Addr("2001:db8::1")}},
	}
}

func RivalName(i int) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: fmt.Sprintf("farm-%d", i)}
}

// state returns a Service according to its traits, or none if the first trait
// is zero.
func (c *Rivals) state(i int) (s model.ServiceState) {
	b := c.Specs[i]
	if b[0] > 0 {
		s.Service = farmService(i, b)
	}
	for n, at := range []int{11, 16} {
		if slice := rivalSlice(i, n, [5]byte(b[at:at+5]), b[21+n]); slice != nil {
			s.Slices = append(s.Slices, slice)
		}
	}
	return s
}

func farmService(i int, b [Traits]byte) *model.Service {
	v4, v6 := netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)}), Addr(fmt.Sprintf("fd00:96::%x", i+1))
	other := netip.AddrFrom4([4]byte{10, 96, 0, byte((i+1)%Rivalry + 1)})
	s := &model.Service{
		Name: RivalName(i), Created: int64(b[0] % 4),
		ClusterIPs:      [][]netip.Addr{{v4}, {v6}, {v4, v6}, {v6, other}, nil}[b[1]%5],
		AffinityTimeout: []time.Duration{0, time.Second, 90 * time.Second, 3 * time.Hour, 24 * time.Hour}[b[5]%5],
		InternalPolicy:  model.Policy(b[4] & 1), ExternalPolicy: model.Policy(b[4] >> 1 & 1),
		Scheduler: model.Scheduler(b[6] % 4), ClientAddresses: model.ClientAddresses(b[6] / 4 % 3), NoClusterIP: b[1]%10 == 9,
		External: &model.External{
			ExternalIPs:     [][]netip.Addr{nil, {Addr("203.0.113.1")}, {Addr("203.0.113.2"), Addr("203.0.113.2")}, {other}, {Addr("2001:db8:2::1"), Addr("203.0.113.1")}}[b[7]%5],
			LoadBalancerIPs: [][]netip.Addr{nil, {Addr("198.51.100.1")}, {Addr("203.0.113.1")}, {Addr("2001:db8:1::1"), Addr("198.51.100.2")}}[b[8]%4],
			SourceRanges: [][]netip.Prefix{nil, {netip.MustParsePrefix("10.0.0.0/8")},
				{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("fd00::/8")},
				{netip.MustParsePrefix("192.168.7.1/32"), netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("2001:db8::/32")}}[b[9]%4],
		},
		HealthCheckNodePort: uint16(b[10]%2) * 32000,
	}
	all := []model.ServicePort{
		{Name: "http", Protocol: model.TCP, Port: 80, NodePort: []uint16{0, 30000, 30001}[b[3]%3]},
		{Name: "dns", Protocol: model.UDP, Port: 53, NodePort: []uint16{0, 30000, 53}[b[3]/3%3]},
		{Name: "alt", Protocol: model.TCP, Port: 30000},
		{Name: "sctp", Protocol: model.SCTP, Port: 80},
	}
	for n, p := range all {
		if b[2]>>n&1 == 0 {
			s.Ports = append(s.Ports, p)
		}
	}
	s.Extras = &model.Extras{Ranges: portRanges(int(b[2] >> 4)), Limits: limits(b[23]), Sources: sources(b[24]), MaglevSize: model.MaglevSizes[0]}
	if b[25]/8%8 == 7 {
		s.Extras.ZoneFloor = 60
	}
	if b[25]%8 > 5 { // seldom: such a frontend has hundreds of elements
		s.Scheduler = model.Maglev + model.Scheduler(b[25]%2)
	}
	return s
}

// rivalSlice returns the n-th slice of a Service, nil if there is none. Its
// first trait is about the slice, the others are the hosts.
func rivalSlice(i, n int, b [5]byte, hints byte) *model.EndpointSlice {
	if b[0]&1 > 0 {
		return nil
	}
	s := &model.EndpointSlice{Namespace: "default", Name: fmt.Sprintf("slice-%d", n), Service: RivalName(i).Name, Family: model.IPv4}
	if b[0]&2 > 0 {
		s.Family = model.IPv6
	}
	if b[0]&4 > 0 {
		i = 0 // its endpoints serve several Services
	}
	for bit, p := range []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53},
		{Name: "alt", Protocol: model.TCP, Port: 8080}, {Name: "sctp", Protocol: model.SCTP, Port: 8080}} {
		if b[0]>>(4+bit)&1 == 0 {
			s.Ports = append(s.Ports, p)
		}
	}
	for h, state := range b[1:] {
		if state == 0 {
			continue
		}
		a := netip.AddrFrom4([4]byte{10, 128, byte(i), byte(n*farHost + h)})
		if s.Family == model.IPv6 {
			a = Addr(fmt.Sprintf("fd00:128::%x:%x", i, n*farHost+h))
		}
		host := model.Host{
			Address: a, Ready: state&1 > 0, Serving: state&2 > 0, Terminating: state&4 > 0,
			Weight: uint16(state >> 5 & 3), Drain: state>>7 > 0,
		}
		var zones, nodes []string
		switch hints >> (2 * h) & 3 {
		case 1:
			zones = []string{"za"}
		case 2:
			zones, nodes = []string{"zb", "za"}, []string{"node-1"}
		case 3:
			nodes = []string{"node-2"}
		}
		host.Place = model.NewPlace([]string{"node-1", "node-2", ""}[state>>3%3], []string{"", "za", "zb"}[(h+int(hints))%3], zones, nodes)
		s.Hosts = append(s.Hosts, host)
	}
	return s
}

// Change changes a trait or two of a Service, or all of them, and returns its
// number.
func (c *Rivals) Change(r *rand.Rand) int {
	i := r.IntN(Rivalry)
	switch n := r.IntN(8); n {
	case 7:
		c.Specs[i] = [Traits]byte{}
	case 6:
		for j := range c.Specs[i] {
			c.Specs[i][j] = byte(r.Uint64())
		}
	default:
		for range 1 + n/5 {
			c.Specs[i][r.IntN(Traits)] = byte(r.Uint64())
		}
	}
	return i
}

func (c *Rivals) States(of ...int) map[model.ServiceName]model.ServiceState {
	out := make(map[model.ServiceName]model.ServiceState)
	for _, i := range of {
		out[RivalName(i)] = c.state(i)
	}
	return out
}

func (c *Rivals) All() []int {
	return upTo(Rivalry)
}

// Resolve starts from nothing.
func (c *Rivals) Resolve() *model.Routing {
	s := &model.Snapshot{Nodes: c.Nodes(), ServiceCIDRs: c.Cidrs}
	for i := range Rivalry {
		if state := c.state(i); state.Service != nil {
			s.Services = append(s.Services, state.Service)
			s.Slices = append(s.Slices, state.Slices...)
		}
	}
	return model.Resolve(s, c.Config)
}

func (c *Rivals) Render() *nft.Ruleset { return render.Render(c.Resolve()) }
