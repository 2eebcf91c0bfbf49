package render_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// mixed returns services with all features mixed, for up to five endpoints.
func mixed(services int) *model.Snapshot {
	s := snapshot(services, 5)
	for i, svc := range s.Services {
		svc.Scheduler = model.Scheduler(i % 4)
		if i%2 == 0 {
			svc.ExternalPolicy = model.PolicyLocal
		}
		if i%3 == 0 {
			svc.External = &model.External{
				LoadBalancerIPs: []netip.Addr{netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})},
				SourceRanges:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12")},
			}
		}
		if i%5 == 0 {
			svc.AffinityTimeout = []time.Duration{90 * time.Second, 3 * time.Hour}[i/5%2]
		}
		svc.Ports[0].NodePort = uint16(1 + i%60000)
		hosts := s.Slices[i].Hosts
		s.Slices[i].Hosts = hosts[:i%6]
		for j := range s.Slices[i].Hosts {
			hosts[j].Place = model.OnNode([]string{"node-1", "node-2"}[j%2])
			hosts[j].Weight = uint16(i / 6 % 3)
		}
	}
	s.Nodes = []*model.Node{{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}}}
	return s
}

// count returns the numbers of sets, chains and rules, and of elements.
func count(services int) (structure string, elements int) {
	rs := render.Render(model.Resolve(mixed(services), model.Config{NodeName: "node-1", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")},
		AnswerPing: true, LoadBalancerCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.0.0/8")}}))
	t := rs.Tables[0]
	rules := 0
	for _, c := range t.Chains {
		rules += len(c.Rules)
	}
	for _, s := range t.Sets {
		elements += len(s.Elements)
	}
	return fmt.Sprintf("%d sets, %d chains, %d rules", len(t.Sets), len(t.Chains), rules), elements
}

// passed returns how many rules a connection may pass that no element of a map of verdicts
// sends elsewhere, and how many sets the kernel walks to find one.
func passed(t *nft.Table) (rules, sets int) {
	seen := make(map[string]bool)
	var visit func(c *nft.Chain)
	visit = func(c *nft.Chain) {
		if seen[c.Name] {
			return
		}
		seen[c.Name] = true
		rules += len(c.Rules)
		for _, s := range slices.Concat(c.Rules...) {
			if v, ok := s.(nft.Verdict); ok && v.Chain != "" {
				visit(t.Chain(v.Chain))
			}
		}
	}
	for _, c := range t.Chains {
		if c.Hook != nft.NoHook {
			visit(c)
		}
	}
	return rules, len(t.Sets)
}

// TestAffinityTimeoutsAreElements: the rules that connections to other Services, and to
// none, pass do not depend on the number of timeouts, nor do the sets; each timeout adds one
// chain. They do not change either when a Service with another timeout comes.
func TestAffinityTimeoutsAreElements(t *testing.T) {
	services := func(n int) (*model.Snapshot, model.Config) {
		s := snapshot(n, 2)
		for i, svc := range s.Services {
			svc.AffinityTimeout = time.Duration(600+i) * time.Second
			svc.ExternalPolicy = model.PolicyLocal
			svc.Ports[0].NodePort = uint16(30000 + i)
			s.Slices[i].Hosts[0].Place = model.OnNode("node-1")
		}
		all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		return s, model.Config{NodeName: "node-1", NodePortAddresses: all, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}
	}
	few, many := render.Render(model.Resolve(services(1))).Tables[0], render.Render(model.Resolve(services(1000))).Tables[0]
	oneRules, oneSets := passed(few)
	if rules, sets := passed(many); rules != oneRules || sets != oneSets {
		t.Errorf("1 timeout: %d rules, %d sets; 1,000 timeouts: %d rules, %d sets", oneRules, oneSets, rules, sets)
	}
	if n := len(many.Set(nft.BindersMap).Elements); n < 1000 {
		t.Errorf("%d chains bind clients, want one for each timeout at least", n)
	}
}

// TestClientLimitsAreElements: 4.88, 4.94. The rules that connections pass do not depend on how many Services have limits of
// clients; each of these adds a chain and a set, also if their values are the same, and a change of another Service names
// none of them. An empty set of clients takes little memory.
func TestClientLimitsAreElements(t *testing.T) {
	services := func(n int) *model.Routing {
		s := snapshot(n, 2)
		for i, svc := range s.Services {
			svc.Ports[0].NodePort = uint16(30000 + i)
			svc.Extras = &model.Extras{
				Limits: model.Limits{ConnectionsPerClient: 7, RatePerClient: model.Rate{Amount: 7, Burst: 10}},
				Ranges: []model.PortRange{{ServicePort: model.ServicePort{Name: "10-20/udp", Protocol: model.UDP, Port: 10}, Last: 20}},
			}
		}
		all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		return model.Resolve(s, model.Config{NodeName: "node-1", NodePortAddresses: all,
			InterfaceAddresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}})
	}
	const many = budget.ClientLimits / 2
	few := render.Render(services(1)).Tables[0]
	routing := services(many)
	state, delta := render.Start(routing)
	table := delta.After.Tables[0]
	oneRules, _ := passed(few)
	if rules, _ := passed(table); rules != oneRules {
		t.Errorf("with 1 Service connections pass %d rules, with %d %d", oneRules, many, rules)
	}
	if n := len(table.Sets) - len(few.Sets); n != 6*(many-1) {
		t.Errorf("%d Services have %d sets more than one", many, n)
	}
	for _, s := range few.Sets {
		if s.Dynamic && (s.Size == 0 || uint16(s.Size) != 0) { // the kernel makes room for that many elements at once
			t.Errorf("set %s has size %d, want a multiple of 65536", s.Name, s.Size)
		}
	}
	change := state.Change([]model.RouteChange{{Frontend: routing.Routes[0].Frontend, Old: &routing.Routes[0]}}, routing.NodePortAddresses)
	if n := len(change.Before.Tables[0].Sets); n > len(few.Sets) {
		t.Errorf("a change of one Service names %d sets", n)
	}
}

// TestServicesAreElements proves that 10,000 more services add elements and
// nothing else. (With a few services not every lane is in use.)
func TestServicesAreElements(t *testing.T) {
	few, fewElements := count(10000)
	many, manyElements := count(20000)
	if few != many {
		t.Errorf("10,000 services: %s; 20,000 services: %s", few, many)
	}
	if manyElements < 19*fewElements/10 {
		t.Errorf("10,000 services: %d elements; 20,000 services: %d", fewElements, manyElements)
	}
}
