package report

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/show"
)

// TestSettingsAreThoseOfTheRules: the rules alone say how a Service with each setting is
// served.
func TestSettingsAreThoseOfTheRules(t *testing.T) {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	balanced := func() (*model.Snapshot, *model.Service) {
		s := &model.Service{Name: web, NoClusterIP: true, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, External: &model.External{
			LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::10")}}}
		world := &model.Snapshot{Nodes: []*model.Node{{Name: "node-1"}}, Services: []*model.Service{s}}
		for f, addresses := range map[model.Family][]string{model.IPv4: {"10.0.0.1", "10.0.0.2"}, model.IPv6: {"fd00::1", "fd00::2"}} {
			slice := &model.EndpointSlice{Namespace: web.Namespace, Service: web.Name, Family: f, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}}
			for _, a := range addresses {
				slice.Hosts = append(slice.Hosts, model.Host{Address: netip.MustParseAddr(a), Ready: true, Serving: true})
			}
			world.Slices = append(world.Slices, slice)
		}
		return world, s
	}
	for _, c := range []struct {
		name string
		set  func(*model.Service)
		want string
	}{
		{"nothing", func(*model.Service) {}, "scheduler         round-robin"},
		{"all", func(s *model.Service) {
			s.Scheduler, s.ClientAddresses = model.SourceHash, model.KeepClientAddresses
			s.Extras = &model.Extras{Limits: model.Limits{Connections: 100, RatePerClient: model.Rate{Amount: 5, Burst: 7}},
				Sources: model.NewSources(true, prefixes("192.0.2.0/24", "2001:db8:1::/48"), prefixes("192.0.2.7/32"))}
		}, "scheduler         source-hash|allowed clients   192.0.2.0/24, 2001:db8:1::/48|denied clients    192.0.2.7/32|limits            5 new connections per second per client (burst 7) to each address and port|100 connections to each address and port|" +
			"client addresses  kept: answers of endpoints must return through this machine"},
		{"clients of one family", func(s *model.Service) {
			s.Extras = &model.Extras{Sources: model.NewSources(true, prefixes("192.0.2.0/24"), nil)}
		}, "scheduler         round-robin|allowed clients   192.0.2.0/24; no IPv6 client"},
		{"no client", func(s *model.Service) { s.Extras = &model.Extras{Sources: model.NewSources(true, nil, nil)} }, "scheduler         round-robin|allowed clients   no client"},
		{"table", func(s *model.Service) {
			s.Scheduler, s.Extras = model.MaglevPort, &model.Extras{MaglevSize: model.MaglevSizes[0]}
		}, "scheduler         maglev-port, 251 slots"},
		{"affinity", func(s *model.Service) { s.AffinityTimeout = time.Minute }, "scheduler         round-robin|affinity          a client stays with its endpoint for 1m after its last new connection"},
	} {
		world, s := balanced()
		c.set(s)
		objects, rules := views(world)
		for from, s := range map[string]*api.Description{"objects": objects, "rules": ofRules(rules, web)} {
			if diff := cmp.Diff(strings.Split(c.want, "|"), settings(t, s)); diff != "" {
				t.Errorf("%s, from %s (-want +got):\n%s", c.name, from, diff)
			}
		}
	}
}

// settings returns the lines about settings.
func settings(t *testing.T, s *api.Description) []string {
	t.Helper()
	var b strings.Builder
	if err := show.Description(&b, s, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	var out []string
	label := "" // of the line, or of the one before
	for line := range strings.Lines(b.String()) {
		if len(line) > 3 && line[2] != ' ' {
			label, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
		}
		if slices.Contains([]string{"scheduler", "affinity", "allowed clients", "denied clients", "limits", "client addresses"}, label) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// 9.28: a Service that decides about connections to endpoints that fail says so, and others
// say nothing.
func TestOnFailure(t *testing.T) {
	s := randomWorld(rand.New(rand.NewPCG(3, 4)))
	for o, want := range map[model.OnFailure]string{
		model.DefaultOnFailure: "",
		model.KeepOnFailure:    "on failure        established TCP connections to an endpoint that fails or leaves are kept\n",
		model.CloseOnFailure:   "on failure        established TCP connections to an endpoint that fails or leaves are closed\n",
	} {
		s.Services[0].Extras = &model.Extras{OnFailure: o}
		objects, _ := views(s)
		var text strings.Builder
		if err := show.Description(&text, objects, time.Now(), false); err != nil {
			t.Fatal(err)
		}
		if got := text.String(); !strings.Contains(got, want) || strings.Contains(got, "on failure ") != (want != "") {
			t.Errorf("%s: want %q in\n%s", o, want, got)
		}
	}
}
