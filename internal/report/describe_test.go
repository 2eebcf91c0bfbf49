package report

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

var web = model.ServiceName{Namespace: "shop", Name: "web"}

// randomWorld has one Service with endpoints in any condition.
func randomWorld(r *rand.Rand) *model.Snapshot {
	policy := func() model.Policy { return model.Policy(r.IntN(2)) }
	s := &model.Service{Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, InternalPolicy: policy(), ExternalPolicy: policy(),
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}}
	if r.IntN(2) == 0 {
		s.External = &model.External{ExternalIPs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}}
	}
	if r.IntN(4) == 0 {
		s.External = &model.External{LoadBalancerIPs: s.ClusterIPs}
		s.ClusterIPs, s.NoClusterIP = nil, true
	}
	slice := &model.EndpointSlice{Namespace: web.Namespace, Name: "web-1", Service: web.Name, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}}
	for i := range r.IntN(6) {
		ready := r.IntN(3) > 0
		slice.Hosts = append(slice.Hosts, model.Host{
			Address: netip.AddrFrom4([4]byte{10, 128, 0, byte(i)}), Ready: ready, Serving: ready || r.IntN(2) == 0,
			Terminating: !ready && r.IntN(2) == 0, Place: model.OnNode([]string{"", "node-1", "node-2"}[r.IntN(3)]),
			Weight: uint16(r.IntN(5)), Drain: r.IntN(6) == 0,
		})
	}
	if r.IntN(10) == 0 {
		s.Scheduler, s.Extras = model.Maglev, &model.Extras{MaglevSize: model.MaglevSizes[0]}
	}
	return &model.Snapshot{Nodes: []*model.Node{{Name: "node-1"}}, Services: []*model.Service{s}, Slices: []*model.EndpointSlice{slice}}
}

func views(s *model.Snapshot) (*api.Description, *nft.Ruleset) {
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1"}, s.Nodes, nil)
	router.SetServices(s.Update().Services)
	return FromView(router.View(web)), render.Render(router.Routing())
}

// TestSharesAreThoseOfTheRules compares what objects and rules say about many Services.
func TestSharesAreThoseOfTheRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	forwarded, outside := 0, 0
	for range 5000 {
		objects, rules := views(randomWorld(r))
		kernel := ofRules(rules, web)
		if len(objects.Ports) != 1 || len(kernel.Ports) != 1 {
			t.Fatalf("%d and %d ports", len(objects.Ports), len(kernel.Ports))
		}
		verdicts := func(s *api.Description) string {
			text := ""
			for _, f := range s.Ports[0].Frontends {
				text += fmt.Sprintln(f.Kind, f.Address, f.Inside, f.Outside)
			}
			return text
		}
		if a, b := verdicts(objects), verdicts(kernel); a != b {
			t.Fatalf("objects say\n%srules say\n%s", a, b)
		}
		inRules := make(map[string]api.DescribedEndpoint)
		for _, e := range kernel.Ports[0].Endpoints {
			inRules[e.Address] = e
		}
		differ := len(objects.Ports[0].Frontends) == 1 || objects.InternalPolicy == "Cluster"
		for _, e := range objects.Ports[0].Endpoints {
			k := inRules[e.Address]
			if (e.Inside.Part == 0) == (e.Inside.LeftOut == "") {
				t.Fatalf("share and reason: %+v", e)
			}
			if differ && math.Abs(e.Inside.Part-k.Inside.Part) > 1e-9 || differ && e.Inside.Slots != k.Inside.Slots && objects.ExternalPolicy != "Local" {
				t.Fatalf("inside: objects say %+v, rules say %+v", e, k)
			}
			if e.Outside != nil && k.Outside != nil && differ {
				outside++
				if math.Abs(e.Outside.Part-k.Outside.Part) > 1e-9 {
					t.Fatalf("outside: objects say %+v, rules say %+v", e.Outside, k.Outside)
				}
			}
			if e.Inside.Part > 0 {
				forwarded++
			}
		}
	}
	if forwarded < 1000 || outside < 100 {
		t.Errorf("%d shares, %d of them outside", forwarded, outside)
	}
}

// TestMaglev: the table is part of the scheduler, with what is uneven.
func TestMaglev(t *testing.T) {
	for endpoints, want := range map[int]string{2: "maglev, 251 slots", 3: "maglev, 251 slots for 3 endpoints: shares differ by up to 1 %"} {
		s := &model.Service{Name: web, Scheduler: model.Maglev, Extras: &model.Extras{MaglevSize: 251}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}}
		slice := &model.EndpointSlice{Namespace: web.Namespace, Service: web.Name, Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 80}}}
		for i := range endpoints {
			slice.Hosts = append(slice.Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Ready: true, Serving: true})
		}
		objects, _ := views(&model.Snapshot{Nodes: []*model.Node{{Name: "node-1"}}, Services: []*model.Service{s}, Slices: []*model.EndpointSlice{slice}})
		var b strings.Builder
		if err := show.Description(&b, objects, time.Time{}, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want+"\n") || objects.Maglev.Slots != 251 {
			t.Errorf("%d endpoints: no %q, %+v in\n%s", endpoints, want, objects.Maglev, b.String())
		}
	}
}

// TestTableInBudget: 3.60. The table is the one in use, not the one that the Service asks
// for, and so are the shares.
func TestTableInBudget(t *testing.T) {
	for ports, want := range map[int]string{17: "maglev, 509 slots", 66: "source-hash"} {
		s := &model.Service{Name: web, Scheduler: model.Maglev, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
		slice := &model.EndpointSlice{Namespace: web.Namespace, Service: web.Name, Family: model.IPv4}
		for i := range ports {
			name := fmt.Sprint("p", i)
			s.Ports = append(s.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(80 + i)})
			slice.Ports = append(slice.Ports, model.EndpointPort{Name: name, Protocol: model.TCP, Port: 80})
		}
		for i := range 2 {
			slice.Hosts = append(slice.Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Ready: true, Serving: true})
		}
		objects, rules := views(&model.Snapshot{Nodes: []*model.Node{{Name: "node-1"}}, Services: []*model.Service{s}, Slices: []*model.EndpointSlice{slice}})
		var b strings.Builder
		if err := show.Description(&b, objects, time.Time{}, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want+"\n") || len(objects.Notices) != 1 || !strings.Contains(b.String(), objects.Notices[0]) {
			t.Errorf("%d ports: no %q, or not one notice, in\n%s", ports, want, b.String())
		}
		if got, want := objects.Ports[0].Endpoints[0].Inside, ofRules(rules, web).Ports[0].Endpoints[0].Inside; got.Slots != want.Slots {
			t.Errorf("%d ports: the first endpoint has %d slots, in the rules %d", ports, got.Slots, want.Slots)
		}
	}
}

func TestAddWarnings(t *testing.T) {
	s := &api.Description{Namespace: "shop", Name: "web", Slices: []string{"web-1"}}
	addWarnings(s, []string{
		"Service shop/web: odd", "a.yaml: EndpointSlice shop/web-1: odd", "Service shop/web-2: odd", "Service workshop/web: odd", "odd",
		"shop/web-2 and shop/web",
	})
	if len(s.Warnings) != 3 {
		t.Errorf("warnings %q", s.Warnings)
	}
}

// TestPrintHostile: names of a file or of the kernel reach no terminal.
func TestPrintHostile(t *testing.T) {
	evil := "a\x1b[2J\u009b31m\nforged\tx\u202e"
	n, one := uint64(1), 1
	s := &api.Description{From: evil, Namespace: evil, Name: evil, Node: evil, Zone: evil, InternalPolicy: evil, ExternalPolicy: evil, AffinitySeconds: 1,
		Clients: &api.Clients{Bound: 1, AtLeast: true}, Scheduler: evil, Slices: []string{evil}, Notices: []string{evil}, Warnings: []string{evil},
		Changed: &api.LastChange{What: evil}, Unknown: []string{evil},
		Ports: []api.DescribedPort{{Name: evil, Protocol: evil,
			Frontends: []api.DescribedFrontend{{Kind: evil, Address: evil, Inside: evil, Outside: evil, AlsoClaimed: []string{evil}, Connections: &n}},
			Endpoints: []api.DescribedEndpoint{{Address: evil, Node: evil, Zones: []string{evil}, Nodes: []string{evil}, State: evil, Inside: api.Share{LeftOut: evil}, Clients: &one}}}}}
	var out strings.Builder
	if err := show.Description(&out, s, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasPrefix(line, "forged") {
			t.Errorf("line %q", line)
		}
	}
}

func TestResolve(t *testing.T) {
	all := []model.ServiceName{{Namespace: "shop", Name: "web"}, {Namespace: "shop", Name: "db"}, {Namespace: "other", Name: "db"}}
	for question, want := range map[string]string{
		"shop/web": "shop/web", "web": "shop/web", "other/db": "other/db",
		"db": `"db" is the name of several Services: choose other/db, shop/db`, "wbe": `no Service is named "wbe": did you mean shop/web?`,
		"shop/dbb": `no Service is named "shop/dbb": did you mean shop/db or shop/web?`, "": `no Service is named ""`, "/": `no Service is named "/"`,
	} {
		name, err := api.Resolve(question, api.NameList(all), words.Kubernetes)
		if got := name.String(); err == nil && got != want || err != nil && err.Error() != want {
			t.Errorf("%q: %s, %v; want %s", question, got, err, want)
		}
	}
}

// unlisted are names of which a test lists not all.
type unlisted struct {
	api.NameList
	t *testing.T
}

func (u unlisted) Names() []model.ServiceName {
	u.t.Error("all names are listed")
	return nil
}

// TestResolveOne: a name that there is costs no list of all names.
func TestResolveOne(t *testing.T) {
	one := model.ServiceName{Namespace: "shop", Name: "web"}
	for _, name := range []string{"web", "shop/web"} {
		if got, err := api.Resolve(name, unlisted{api.NameList{one}, t}, words.Balance); err != nil || got != one {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := api.Resolve("/web", api.NameList{one}, words.Balance); err == nil || err.Error() != `no Balance is named "/web": did you mean shop/web?` {
		t.Errorf("without a namespace: %v", err)
	}
}

// TestPrintMany: the output for a Service with many endpoints is limited.
func TestPrintMany(t *testing.T) {
	s := &api.Description{Ports: []api.DescribedPort{{Endpoints: make([]api.DescribedEndpoint, 5000)}}}
	var out strings.Builder
	if err := show.Description(&out, s, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n > 220 || !strings.Contains(out.String(), "and 4800 more: -o json lists all\n") {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// 4.75 to 4.78: who may connect, in text and JSON, and the lists with their fields.
func TestClients(t *testing.T) {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	var many []netip.Prefix
	for i := range 12 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32))
	}
	for _, c := range []struct {
		name    string
		sources *model.Sources
		text    string // lines of who may connect
		json    string
	}{
		{"all", nil, "", ""},
		{"some", model.NewSources(true, prefixes("10.0.0.0/8"), prefixes("10.1.0.0/16", "fd00::/64")), "allowed clients 10.0.0.0/8|denied clients 10.1.0.0/16, fd00::/64",
			`"allowedSources":["10.0.0.0/8"],"deniedSources":["10.1.0.0/16","fd00::/64"]`},
		{"none", model.NewSources(true, nil, nil), "allowed clients no client", `"allowedSources":[]`},
		{"none of a family", model.NewSources(true, prefixes("fd00::/64"), nil), "allowed clients fd00::/64; no IPv4 client", `"allowedSources":["fd00::/64"]`},
		{"many", model.NewSources(false, nil, many), "denied clients 192.0.2.0/32, 192.0.2.1/32, 192.0.2.2/32, 192.0.2.3/32, 192.0.2.4/32, 192.0.2.5/32, 192.0.2.6/32, 192.0.2.7/32, 192.0.2.8/32, 192.0.2.9/32 and 2 more", `"deniedSources":["192.0.2.0/32",`},
	} {
		world := randomWorld(rand.New(rand.NewPCG(1, 2)))
		world.Services[0].Extras = &model.Extras{Sources: c.sources}
		s, _ := views(world)
		var text, data strings.Builder
		if err := errors.Join(show.Description(&text, s, time.Now(), false), terminal.JSON(&data, s)); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(text.String()) {
			if f := strings.Fields(line); len(f) > 0 && (f[0] == "allowed" || f[0] == "denied") {
				lines = append(lines, strings.Join(f, " "))
			}
		}
		if got := strings.Join(lines, "|"); got != c.text {
			t.Errorf("%s: %q, want %q", c.name, got, c.text)
		}
		if compact := strings.Join(strings.Fields(data.String()), ""); !strings.Contains(compact, c.json) || c.json == "" && strings.Contains(compact, "Sources") {
			t.Errorf("%s: no %s in %s", c.name, c.json, compact)
		}
		denied := len(s.SourceLists("NodePort", model.IPv4)) > 0 && s.SourceLists("NodePort", model.IPv4)[0].Excludes(netip.MustParseAddr("192.0.2.3"))
		if want := c.sources != nil && !c.sources.Admits(netip.MustParseAddr("192.0.2.3")); denied != want {
			t.Errorf("%s: excluded %t, want %t", c.name, denied, want)
		}
	}
}

// ofRules returns the description of a Service that rules give.
func ofRules(rs *nft.Ruleset, name model.ServiceName) *api.Description {
	d, _ := fromRules(rs, name)
	return d
}
