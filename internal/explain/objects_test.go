package explain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// randomEndpoints returns up to five endpoints in any condition.
func randomEndpoints(r *rand.Rand) []model.Endpoint {
	some := func(names ...string) []string {
		return slices.DeleteFunc(names, func(string) bool { return r.IntN(3) == 0 })
	}
	all := r.IntN(2) == 0 // else hints are rarely complete
	hints := func(names ...string) []string {
		if all || r.IntN(2) == 0 {
			return some(names...)
		}
		return nil
	}
	out := make([]model.Endpoint, r.IntN(6))
	for i := range out {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		out[i] = model.Endpoint{Port: 80, Host: &model.Host{
			Address:     a,
			Ready:       r.IntN(3) > 0,
			Serving:     r.IntN(2) == 0,
			Place:       model.NewPlace([]string{"", "n1", "n2"}[r.IntN(3)], "", hints("za", "zb"), hints("n1", "n2")),
			Terminating: r.IntN(2) == 0,
			Drain:       r.IntN(5) == 0,
			Failing:     r.IntN(3) == 0,
			Priority:    uint8(r.IntN(2)),
		}}
	}
	return out
}

// TestLeftOutAgreesWithChoose wants a reason for each endpoint that Choose
// leaves out, and for no other.
func TestLeftOutAgreesWithChoose(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	reasons := make(map[string]bool)
	for range 50_000 {
		endpoints := randomEndpoints(r)
		node := &model.Node{Name: "n1", Zone: []string{"", "za"}[r.IntN(2)]}
		choice := model.Choose(&model.Service{}, endpoints, node)
		for policy, chosen := range map[model.Policy][]model.Endpoint{model.PolicyCluster: choice.Cluster, model.PolicyLocal: choice.Local} {
			var rest []netip.AddrPort
			for _, e := range chosen {
				rest = append(rest, e.Address())
			}
			for _, o := range model.LeftOut(&model.Service{}, endpoints, node, policy) {
				if o.Reason == "" {
					t.Fatal("an omission without a reason")
				}
				reasons[o.Reason] = true
				rest = append(rest, o.Endpoint)
			}
			slices.SortFunc(rest, netip.AddrPort.Compare)
			if !slices.EqualFunc(rest, endpoints, func(a netip.AddrPort, e model.Endpoint) bool { return a == e.Address() }) {
				t.Fatalf("%s: chosen and left out are %s of %s", policy, rest, describe(endpoints))
			}
		}
	}
	if len(reasons) < 10 {
		t.Errorf("only these reasons came up: %v", reasons)
	}
}

func describe(endpoints []model.Endpoint) string {
	text := ""
	for _, e := range endpoints {
		text += fmt.Sprintf("%+v ", *e.Host)
	}
	return text
}

// TestLeftOutReasons is the table of reasons.
func TestLeftOutReasons(t *testing.T) {
	ready := model.Host{Ready: true, Serving: true, Place: model.OnNode("n1")}
	for _, c := range []struct {
		name   string
		host   model.Host
		others []model.Host
		policy model.Policy
		want   string
	}{
		{"chosen", ready, nil, model.PolicyCluster, ""},
		{"weight", model.Host{Ready: true, Drain: true}, nil, model.PolicyCluster, "its weight is 0"},
		{"not ready", model.Host{Serving: true}, nil, model.PolicyCluster, "not ready"},
		{"terminating beside ready", model.Host{Serving: true, Terminating: true}, []model.Host{ready}, model.PolicyCluster, "terminating, and others are ready"},
		{"terminating alone", model.Host{Serving: true, Terminating: true}, nil, model.PolicyCluster, ""},
		{"terminated", model.Host{Terminating: true}, nil, model.PolicyCluster, "terminating, and no longer serving"},
		{"other zone", model.Host{Ready: true, Place: model.NewPlace("", "", []string{"zb", "zc"}, nil)}, []model.Host{{Ready: true, Place: model.NewPlace("", "", []string{"za"}, nil)}}, model.PolicyCluster,
			"its topology hints are for zone zb, zc, this is za"},
		{"other node by hints", model.Host{Ready: true, Place: model.NewPlace("", "", nil, []string{"n2"})}, []model.Host{{Ready: true, Place: model.NewPlace("", "", nil, []string{"n1"})}}, model.PolicyCluster,
			"its topology hints are for node n2, this is n1"},
		{"other node", model.Host{Ready: true, Place: model.OnNode("n2")}, nil, model.PolicyLocal, "policy Local, and it is on node n2"},
		{"no node", model.Host{Ready: true}, nil, model.PolicyLocal, "policy Local, and its node is not known"},
		// Hints do not count for policy Local.
		{"hints and policy Local", model.Host{Ready: true, Place: model.NewPlace("n1", "", []string{"zb"}, nil)}, []model.Host{{Ready: true, Place: model.NewPlace("", "", []string{"za"}, nil)}}, model.PolicyLocal, ""},
	} {
		var endpoints []model.Endpoint
		for i, h := range append([]model.Host{c.host}, c.others...) {
			h.Address = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			endpoints = append(endpoints, model.Endpoint{Host: &h, Port: 80})
		}
		got := ""
		for _, o := range model.LeftOut(&model.Service{}, endpoints, &model.Node{Name: "n1", Zone: "za"}, c.policy) {
			if o.Endpoint == endpoints[0].Address() {
				got = o.Reason
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAddObjects finds endpoints that are not even candidates, and conflicts.
func TestAddObjects(t *testing.T) {
	s := service()
	s.Slices = append(s.Slices, &model.EndpointSlice{
		Namespace: "default", Service: "web", Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "other", Protocol: model.TCP, Port: 9}},
		Hosts: []model.Host{{Address: addr("10.128.1.1"), Terminating: true}},
	})
	other := *s.Services[0]
	other.Name.Name = "other"
	other.ClusterIPs = []netip.Addr{addr("10.96.0.11")}
	other.External = &model.External{ExternalIPs: []netip.Addr{addr("10.96.0.10")}}
	s.Services = append(s.Services, &other)
	r := ask(t, s, node1, "203.0.113.7 tcp 10.96.0.10:80")
	var got []string
	for _, o := range r.LeftOut {
		got = append(got, o.Endpoint.String()+" "+o.Reason)
	}
	want := []string{"[fd01::1]:8080 IPv6, and the frontend is IPv4", "10.128.1.1:8080 1 of 2 records of it: the best one counts"}
	if !slices.Equal(got, want) {
		t.Errorf("left out are %q, want %q", got, want)
	}
	if want := (Claim{"default/other:http", "external IP"}); !slices.Equal(r.Conflicts, []Claim{want}) {
		t.Errorf("conflicts are %v, want %v", r.Conflicts, want)
	}
	if r := ask(t, s, node1, "203.0.113.7 tcp 10.96.0.99:80"); r.Service != "" || r.LeftOut != nil || r.Conflicts != nil {
		t.Errorf("objects behind nothing: %+v", r)
	}
}

// TestRange: 4.51. A range is named, by the rules alone, too, with the hosts that it leaves
// out and the ranges that overlap it; a port of its own is not the range.
func TestRange(t *testing.T) {
	ranged := func(port model.PortRange) *model.Extras {
		port.Name = port.String()
		return &model.Extras{Ranges: []model.PortRange{port}}
	}
	s := service()
	web := s.Services[0]
	web.Extras = ranged(model.PortRange{ServicePort: model.ServicePort{Protocol: model.TCP, Port: 80}, Last: 90})
	web.External = &model.External{ExternalIPs: []netip.Addr{addr("192.0.2.1")}}
	web.Created, web.AffinityTimeout = 1, time.Hour
	s.Slices[0].Hosts[1].Ready = false
	other := *web
	other.Name.Name, other.Created, other.ClusterIPs = "other", 2, []netip.Addr{addr("10.96.0.11")}
	other.Extras = ranged(model.PortRange{ServicePort: model.ServicePort{Protocol: model.TCP, Port: 1}, Last: 100})
	other.Ports = nil
	s.Services = append(s.Services, &other)

	for _, ask := range []func(*testing.T, *model.Snapshot, model.Config, string) *Result{ask, askRules} {
		r := ask(t, s, node1, "203.0.113.7 tcp 192.0.2.1:85")
		if r.Service != "default/web:80-90/tcp" || r.Frontend.String() != "tcp 192.0.2.1:80-90" || briefs(r) != "forward 10.128.1.1:85 masquerade" {
			t.Errorf("%s, %s: %s", r.Service, r.Frontend, briefs(r))
		}
		var text, object strings.Builder
		if err := errors.Join(Print(&text, r, Brief, false), JSON(&object, r)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "frontend   tcp 192.0.2.1:80-90, a range of ports\n") || !strings.Contains(object.String(), `"frontend": "tcp 192.0.2.1:80-90"`) {
			t.Errorf("%s\n%s", text.String(), object.String())
		}
		if exact := ask(t, s, node1, "203.0.113.7 tcp 192.0.2.1:80"); exact.Service != "default/web:http" || exact.Frontend.IsRange() {
			t.Errorf("port 80 is %s, %s", exact.Service, exact.Frontend)
		}
		if out := ask(t, s, node1, "203.0.113.7 tcp 192.0.2.1:91"); out.Service != "" {
			t.Errorf("port 91 is %s", out.Service)
		}
	}
	r := ask(t, s, node1, "203.0.113.7 tcp 192.0.2.1:85")
	if got := fmt.Sprint(r.LeftOut, r.Conflicts); got != "[{10.128.2.1:0 not ready} {[fd01::1]:0 IPv6, and the frontend is IPv4}] [{default/other:1-100/tcp external IP}]" {
		t.Errorf("left out and conflicts: %s", got)
	}
	if !strings.Contains(fmt.Sprint(r.Notes), "source-hash") {
		t.Errorf("notes %q", r.Notes)
	}
}

// TestNodePortObjects: a NodePort on several addresses of the node is found on each
// of them (6.6), and reported as a loser where an address of another Service hides
// it. An address without endpoints is the loser (4.37).
func TestNodePortObjects(t *testing.T) {
	s := service()
	s.Services[0].Ports[0].NodePort = 30080
	other := *s.Services[0]
	other.Name.Name = "other"
	other.ClusterIPs = []netip.Addr{addr("10.96.0.11")}
	other.External = &model.External{ExternalIPs: []netip.Addr{addr("10.1.1.2")}}
	other.Ports = []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 30080}}
	s.Services = append(s.Services, &other)
	slice := *s.Slices[0]
	slice.Name, slice.Service = "other-1", "other"
	s.Slices = append(s.Slices, &slice)
	empty := other
	empty.Name.Name, empty.External = "empty", &model.External{ExternalIPs: []netip.Addr{addr("10.1.1.3")}}
	empty.ClusterIPs = []netip.Addr{addr("10.96.0.12")}
	s.Services = append(s.Services, &empty)
	config := node1
	config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	config.InterfaceAddresses = []netip.Addr{addr("10.1.1.1"), addr("10.1.1.2"), addr("10.1.1.3"), addr("10.2.0.1")}
	for _, c := range []struct{ address, service, losers string }{
		{"10.1.1.1", "default/web:http NodePort", "[]"},
		{"10.1.1.2", "default/other:http external IP", "[{default/web:http NodePort}]"},
		{"10.1.1.3", "default/web:http NodePort", "[{default/empty:http external IP}]"},
		{"10.2.0.1", " ", "[]"},
	} {
		question := "203.0.113.7 tcp " + c.address + ":30080"
		rules, r := askRules(t, s, config, question), ask(t, s, config, question)
		byRules, byObjects := rules.Service+" "+rules.Kind, r.Service+" "+r.Kind
		if byRules != c.service || byObjects != c.service || fmt.Sprint(r.Conflicts) != c.losers {
			t.Errorf("%s: the rules say %q, the objects %q with conflicts %v; want %q, %s", c.address, byRules, byObjects, r.Conflicts, c.service, c.losers)
		}
	}
}
