package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/steer"
)

const (
	traits  = 24 // of a Service with its slices, each one byte
	farms   = 5  // numbers of Services
	farHost = 2  // the hosts of a second slice start at this one of the first
)

// country is some Services that get into each other's way: they share
// addresses, node ports and endpoints. Each is a pure function of its number and
// its traits, so that changing a byte changes one thing about one Service.
type country struct {
	specs  [farms][traits]byte
	config model.Config
	zone   string
	cidrs  []netip.Prefix
}

func newCountry() *country {
	return &country{config: model.Config{NodeName: "node-1", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}}
}

// configure changes what all Services have in common.
func (c *country) configure(r *rand.Rand) {
	c.config.DetectLocal = model.DetectMode(r.IntN(4))
	c.config.PodInterface = []string{"", "cali", "cbr0-with-a-very-long-name"}[r.IntN(3)]
	c.config.MasqueradeAll = r.IntN(2) == 1
	c.config.Scheduler = model.Scheduler(r.IntN(4))
	c.config.Counters = r.IntN(2) == 1
	c.zone = []string{"", "za", "zb"}[r.IntN(3)]
	c.cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("10.100.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}[:r.IntN(4)]
	c.config.NodePortAddresses = [][]netip.Prefix{nil, {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/32")}}[r.IntN(2)]
	c.move(r)
}

// move gives the interfaces of the node other addresses, among them ClusterIPs and
// load balancer IPs.
func (c *country) move(r *rand.Rand) {
	c.config.InterfaceAddresses = nil
	for _, a := range []string{"192.168.7.1", "198.51.100.1", "203.0.113.1", "10.96.0.2", "2001:db8::1", "2001:db8:1::1"} {
		if r.IntN(2) == 1 {
			c.config.InterfaceAddresses = append(c.config.InterfaceAddresses, addr(a))
		}
	}
}

func (c *country) nodes() []*model.Node {
	return []*model.Node{
		{Name: "node-2", Addresses: []netip.Addr{addr("192.168.7.2")}},
		{Name: "node-1", Zone: c.zone, Addresses: []netip.Addr{addr("192.168.7.1"), addr("2001:db8::1")}},
	}
}

func farm(i int) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: fmt.Sprintf("farm-%d", i)}
}

// state returns a Service as its traits say; with the first one zero there is
// none.
func (c *country) state(i int) (s model.ServiceState) {
	b := c.specs[i]
	if b[0] > 0 {
		s.Service = farmService(i, b)
	}
	for n, at := range []int{11, 16} {
		if slice := farmSlice(i, n, [5]byte(b[at:at+5]), b[21+n]); slice != nil {
			s.Slices = append(s.Slices, slice)
		}
	}
	return s
}

func farmService(i int, b [traits]byte) *model.Service {
	v4, v6 := netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)}), addr(fmt.Sprintf("fd00:96::%x", i+1))
	other := netip.AddrFrom4([4]byte{10, 96, 0, byte((i+1)%farms + 1)})
	s := &model.Service{
		Name: farm(i), Created: time.Unix(int64(b[0]%4), 0),
		ClusterIPs:      [][]netip.Addr{{v4}, {v6}, {v4, v6}, {v6, other}, nil}[b[1]%5],
		AffinityTimeout: []time.Duration{0, time.Second, 90 * time.Second, 3 * time.Hour, 24 * time.Hour}[b[5]%5],
		InternalPolicy:  model.Policy(b[4] & 1), ExternalPolicy: model.Policy(b[4] >> 1 & 1),
		Scheduler:       model.Scheduler(b[6] % 4),
		ExternalIPs:     [][]netip.Addr{nil, {addr("203.0.113.1")}, {addr("203.0.113.2"), addr("203.0.113.2")}, {other}, {addr("2001:db8:2::1"), addr("203.0.113.1")}}[b[7]%5],
		LoadBalancerIPs: [][]netip.Addr{nil, {addr("198.51.100.1")}, {addr("203.0.113.1")}, {addr("2001:db8:1::1"), addr("198.51.100.2")}}[b[8]%4],
		SourceRanges: [][]netip.Prefix{nil, {netip.MustParsePrefix("10.0.0.0/8")},
			{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("fd00::/8")},
			{netip.MustParsePrefix("192.168.7.1/32"), netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("2001:db8::/32")}}[b[9]%4],
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
	return s
}

// farmSlice returns the n-th slice of a Service, nil if there is none. Its first
// trait is about the slice, the others are the hosts.
func farmSlice(i, n int, b [5]byte, hints byte) *model.EndpointSlice {
	if b[0]&1 > 0 {
		return nil
	}
	s := &model.EndpointSlice{Namespace: "default", Name: fmt.Sprintf("slice-%d", n), Service: farm(i).Name, Family: model.IPv4}
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
			a = addr(fmt.Sprintf("fd00:128::%x:%x", i, n*farHost+h))
		}
		host := model.Host{
			Address: a, Ready: state&1 > 0, Serving: state&2 > 0, Terminating: state&4 > 0,
			Node: []string{"node-1", "node-2", ""}[state>>3%3], Weight: uint16(state >> 5 & 3), Drain: state>>7 > 0,
		}
		switch hints >> (2 * h) & 3 {
		case 1:
			host.ForZones = []string{"za"}
		case 2:
			host.ForZones, host.ForNodes = []string{"zb", "za"}, []string{"node-1"}
		case 3:
			host.ForNodes = []string{"node-2"}
		}
		s.Hosts = append(s.Hosts, host)
	}
	return s
}

// change changes a trait or two of a Service, or all of them, and returns its
// number.
func (c *country) change(r *rand.Rand) int {
	i := r.IntN(farms)
	switch n := r.IntN(8); n {
	case 7:
		c.specs[i] = [traits]byte{}
	case 6:
		for j := range c.specs[i] {
			c.specs[i][j] = byte(r.Uint64())
		}
	default:
		for range 1 + n/5 {
			c.specs[i][r.IntN(traits)] = byte(r.Uint64())
		}
	}
	return i
}

func (c *country) states(of ...int) map[model.ServiceName]model.ServiceState {
	out := make(map[model.ServiceName]model.ServiceState)
	for _, i := range of {
		out[farm(i)] = c.state(i)
	}
	return out
}

func (c *country) all() []int {
	out := make([]int, farms)
	for i := range out {
		out[i] = i
	}
	return out
}

// resolve starts from nothing.
func (c *country) resolve() *model.Routing {
	s := &model.Snapshot{Nodes: c.nodes(), ServiceCIDRs: c.cidrs}
	for i := range farms {
		if state := c.state(i); state.Service != nil {
			s.Services = append(s.Services, state.Service)
			s.Slices = append(s.Slices, state.Slices...)
		}
	}
	return model.Resolve(s, c.config)
}

func (c *country) render() *render.Ruleset { return render.Render(c.resolve()) }

// strict is a fake kernel that looks closely at what it is told, and at what
// becomes of it.
type strict struct {
	*fake
	t *testing.T
}

func newStrict(t *testing.T) strict {
	k := strict{newFake(), t}
	k.seen = func(_, after *render.Ruleset) { k.checkReferences(after) }
	return k
}

func (k strict) Commit(p *Plan, generation uint32) (Size, error) {
	tx, err := Encode(p)
	if err != nil {
		k.t.Errorf("encode: %v", err)
	}
	for _, m := range tx.Messages {
		if err := checkAttributes(m.Data); err != nil {
			k.t.Errorf("message about %s: %v", m.Object, err)
		}
	}
	if size, err := k.fake.Commit(p, generation); err == nil {
		return tx.Size(), nil
	} else {
		return size, err
	}
}

// checkAttributes tells whether the lengths of attributes fit: the outer ones
// have 16 bits and fill the message.
func checkAttributes(data []byte) error {
	if len(data) >= 1<<16 {
		return fmt.Errorf("%d bytes do not fit in a message", len(data))
	}
	ad, err := decoder(data[nfgenmsg:])
	if err != nil {
		return err
	}
	for ad.Next() {
	}
	return ad.Err()
}

// checkReferences checks what the kernel would not have accepted.
func (k strict) checkReferences(r *render.Ruleset) {
	for _, table := range r.Tables {
		for _, s := range table.Sets {
			for i := range s.Elements {
				if i > 0 && s.Elements[i-1].Key.Compare(s.Elements[i].Key) >= 0 {
					k.t.Errorf("elements of %s are not sorted, or come twice: %s", s.Name, s.KeyText(s.Elements[i].Key))
				}
				if v := s.Elements[i].Value.Verdict; v.Chain != "" && table.Chain(v.Chain) == nil {
					k.t.Errorf("%s of %s leads nowhere", s.ElementText(&s.Elements[i]), s.Name)
				}
			}
		}
		for _, c := range table.Chains {
			for _, s := range slices.Concat(c.Rules...) {
				if v, ok := s.(render.Verdict); ok && v.Chain != "" && table.Chain(v.Chain) == nil {
					k.t.Errorf("chain %s leads nowhere: %s", c.Name, v)
				}
				if name := setOf(s); name != "" && table.Set(name) == nil {
					k.t.Errorf("chain %s looks into no set: %s", c.Name, s.Text(table.Family))
				}
			}
		}
	}
}

func setOf(s render.Statement) string {
	switch s := s.(type) {
	case render.InSet:
		return s.Set
	case render.VerdictMap:
		return s.Map
	case render.DNAT:
		return s.Map
	case render.Remember:
		return s.Map
	case render.Forget:
		return s.Map
	}
	return ""
}

// marcher keeps a kernel at a country, as the agent does.
type marcher struct {
	*country
	kernel   strict
	router   *model.Router
	composer *render.Composer
	applier  *Applier
}

func newMarcher(t *testing.T) *marcher {
	k := newStrict(t)
	return &marcher{country: newCountry(), kernel: k, router: model.NewRouter(), applier: New(k, slog.New(slog.DiscardHandler))}
}

// whole compares everything.
func (m *marcher) whole(t *testing.T) {
	t.Helper()
	routing := m.router.Routing()
	if _, err := m.applier.Apply(render.Render(routing)); err != nil {
		t.Fatal(err)
	}
	m.composer = render.NewComposer(routing)
}

// patch takes changes, and all there is if that does not do.
func (m *marcher) patch(t *testing.T, changes []model.RouteChange) {
	t.Helper()
	if before, after, ok := m.composer.Change(changes, m.router.NodePortAddresses()); ok {
		_, err := m.applier.Patch(before, after)
		if err == nil {
			return
		}
		if err != errUnknown && !isOpen(err) {
			t.Fatal(err)
		}
	}
	m.whole(t)
}

// step does what the bytes say next. It returns true if nothing should be left
// over then.
func (m *marcher) step(t *testing.T, r *rand.Rand) (tidy bool) {
	switch r.IntN(16) {
	case 15:
		m.configure(r)
		m.router.Configure(m.config, m.nodes(), m.cidrs)
		m.router.SetServices(m.states(m.all()...))
		m.whole(t)
	case 14: // a restart
		m.applier = New(m.kernel, slog.New(slog.DiscardHandler))
		m.whole(t)
	case 13:
		m.kernel.bind(r)
	case 12: // done, and nobody was told; or not done
		fault := []error{errAfter{unix.ENOBUFS}, unix.EINTR}[r.IntN(2)]
		m.kernel.fails = func(*Plan) error {
			m.kernel.fails = func(*Plan) error { return nil }
			return fault
		}
	case 11:
		if _, err := m.applier.Patch(m.composer.Idle()); err != nil {
			m.whole(t)
		}
		return true
	default:
		var changed []int
		for range 1 + r.IntN(3) {
			changed = append(changed, m.change(r))
		}
		var moved []model.RouteChange
		if r.IntN(8) == 7 && len(m.config.NodePortAddresses) > 0 {
			m.move(r)
			moved, _ = m.router.Configure(m.config, m.nodes(), m.cidrs)
		}
		if r.IntN(4) == 3 {
			m.patch(t, model.JoinChanges(moved, m.router.Replace(m.present())))
		} else {
			m.patch(t, model.JoinChanges(moved, m.router.SetServices(m.states(changed...))))
		}
	}
	return false
}

// present returns the Services that there are.
func (m *marcher) present() map[model.ServiceName]model.ServiceState {
	out := m.states(m.all()...)
	for name, s := range out {
		if s.Service == nil {
			delete(out, name)
		}
	}
	return out
}

// check compares with what a start from nothing would give.
func (m *marcher) check(t *testing.T, tidy bool) {
	t.Helper()
	want := m.resolve()
	if got := m.router.Routing(); !reflect.DeepEqual(want, got) {
		t.Fatalf("the router says otherwise than a fresh one (-fresh +router):\n%s", cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)))
	}
	fresh := render.Render(want)
	current, _, _ := m.kernel.Read()
	serves := service(current)
	for key := range serves {
		if strings.HasPrefix(key, render.AffinityMap+" ") || strings.HasPrefix(key, render.LocalAffinityMap+" ") {
			delete(serves, key)
		}
	}
	if should := service(fresh); !reflect.DeepEqual(should, serves) {
		t.Fatalf("the kernel serves otherwise (-fresh +kernel):\n%s", cmp.Diff(should, serves))
	}
	if should, does := reaches(fresh), reaches(current); !reflect.DeepEqual(should, does) {
		t.Fatalf("clients reach other endpoints (-fresh +kernel):\n%s", cmp.Diff(should, does))
	}
	if !tidy {
		return
	}
	if plan := Diff(current, Settle(current, fresh)); !plan.Empty() {
		t.Fatalf("a comparison of everything finds %s", printed(t, plan))
	}
	forgetBindings(current)
	if diff := cmp.Diff(sorted(Settle(current, fresh)), sorted(current)); diff != "" {
		t.Fatalf("the kernel differs from a fresh render (-fresh +kernel):\n%s", diff)
	}
}

// reaches returns the endpoints, in no order, that clients of each frontend get,
// and those outside of the cluster where it makes a difference.
func reaches(r *render.Ruleset) map[string][]string {
	out := make(map[string][]string)
	for _, t := range r.Tables {
		lanes := NewLanes(t)
		for _, e := range t.Set(render.EndpointsMap).Elements {
			for _, name := range []string{render.ServicesMap, render.LocalServicesMap} {
				if slots, ok := lanes.Of(name, e.Key.Frontend()); ok && slots.Has(e.Key.Slot) {
					key := name + " " + e.Key.Frontend().String()
					out[key] = append(out[key], e.Value.Endpoint.String())
				}
			}
		}
	}
	for _, v := range out {
		slices.Sort(v)
	}
	return out
}

func forgetBindings(r *render.Ruleset) {
	for _, t := range r.Tables {
		for _, s := range t.Sets {
			if s.Dynamic {
				s.Elements = nil
			}
		}
	}
}

// printed prints a plan in every form that it has.
func printed(t *testing.T, p *Plan) string {
	t.Helper()
	var b strings.Builder
	var j bytes.Buffer
	if err := p.Print(&b, false); err != nil {
		t.Error(err)
	}
	if err := p.JSON(&j); err != nil || !json.Valid(j.Bytes()) {
		t.Errorf("JSON of a plan: %v\n%s", err, j.String())
	}
	return b.String()
}

// FuzzSteps: 13.13, 13.14, 13.15. Any sequence of changes, faults and restarts
// ends where a fresh render of the final state ends; no transaction adds what
// exists, deletes what does not or leads to what is not there; and a packet that
// is under way meanwhile finds lanes and slots.
func FuzzSteps(f *testing.F) {
	steer.Seed(f, 0, 60, 200, 600, 1200)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1200 {
			t.Skip("more takes long and shows nothing else")
		}
		r, left := steer.New(data)
		m := newMarcher(t)
		look := m.kernel.seen
		m.kernel.seen = func(before, after *render.Ruleset) {
			look(before, after)
			for _, family := range model.Families {
				if cur, next := before.Table(family), after.Table(family); cur != nil && next != nil {
					checkBetween(t, cur, next)
				}
			}
		}
		m.router.Configure(m.config, m.nodes(), m.cidrs)
		m.whole(t)
		for left.Left() > 0 {
			m.check(t, m.step(t, r))
		}
		m.kernel.fails = func(*Plan) error { return nil }
		if _, err := m.applier.Patch(m.composer.Idle()); err != nil {
			m.whole(t)
		}
		m.check(t, true)
	})
}
