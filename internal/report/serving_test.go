package report

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/show"
)

// TestServing: 11.24, which servers count as usable by clients outside of the node, besides
// their health.
func TestServing(t *testing.T) {
	host := func(a string, edit func(*model.Host)) model.Host {
		h := model.Host{Address: netip.MustParseAddr(a), Ready: true, Serving: true, Weight: 1}
		edit(&h)
		return h
	}
	usable, drained := func(*model.Host) {}, func(h *model.Host) { h.Drain = true }
	unready := func(h *model.Host) { h.Ready, h.Serving = false, false }
	elsewhere := func(h *model.Host) { h.Place = model.OnNode("node-2") }
	for _, c := range []struct {
		name  string
		hosts []model.Host
		edit  func(*model.Service)
		want  string
	}{
		{"no servers", nil, nil, "does not serve: it has no servers"},
		{"a drained one", []model.Host{host("10.0.0.1", drained), host("10.0.0.2", usable)}, nil, "serves: 1 of 2 servers usable; 10.0.0.1: drained by nftproxy drain"},
		{"not ready", []model.Host{host("10.0.0.1", unready)}, nil, "does not serve: 0 of 1 server usable; 10.0.0.1: not ready"},
		{"on another node", []model.Host{host("10.0.0.1", elsewhere)}, nil, "serves: 1 of 1 server usable"},
		{"on another node, policy Local", []model.Host{host("10.0.0.1", elsewhere)}, func(s *model.Service) { s.ExternalPolicy = model.PolicyLocal },
			"does not serve: 0 of 1 server usable; 10.0.0.1: policy Local, and it is on node node-2"},
		{"only pods have policy Local", []model.Host{host("10.0.0.1", elsewhere)}, func(s *model.Service) { s.InternalPolicy = model.PolicyLocal }, "serves: 1 of 1 server usable"},
		{"without an address", []model.Host{host("10.0.0.1", usable)}, func(s *model.Service) { s.Ports = nil }, "does not serve: it has no servers"},
		{"with the addresses of another Service", []model.Host{host("10.0.0.1", usable)}, func(s *model.Service) { s.Created = 2 },
			"does not serve: 0 of 1 server usable; 10.0.0.1: no address leads to it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := []netip.Addr{netip.MustParseAddr("203.0.113.10")}
			s := &model.Service{Name: web, NoClusterIP: true, External: &model.External{LoadBalancerIPs: at}, Created: 1,
				Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}}
			if c.edit != nil {
				c.edit(s)
			}
			slice := &model.EndpointSlice{Namespace: web.Namespace, Name: "web-1", Service: web.Name, Family: model.IPv4,
				Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}}, Hosts: c.hosts}
			world := &model.Snapshot{Nodes: []*model.Node{{Name: "node-1"}}, Services: []*model.Service{s}, Slices: []*model.EndpointSlice{slice}}
			if s.Created == 2 { // an older one has the address
				other := *s
				other.Name, other.Created = model.ServiceName{Namespace: "shop", Name: "other"}, 1
				taken := *slice
				taken.Name, taken.Service = "other-1", other.Name.Name
				world.Services, world.Slices = append(world.Services, &other), append(world.Slices, &taken)
			}
			d, _ := views(world)
			serving := d.Serving()
			v := world.Route(model.Config{NodeName: "node-1"}).View(web)
			if got := served.ServingOf(v); got != (served.Serving{Usable: serving.Usable, Servers: serving.Servers}) {
				t.Errorf("%+v on the node, and %d of %d in its description", got, serving.Usable, serving.Servers)
			}
			var out strings.Builder
			if err := show.Serving(&out, &serving); err != nil || out.String() != "shop/web "+c.want+"\n" || serving.Serves != strings.HasPrefix(c.want, "serves") {
				t.Errorf("%v, %q, want %q", err, out.String(), c.want)
			}
		})
	}
	var empty api.Description
	if empty.Serving().Serves {
		t.Error("an unknown Service serves")
	}
}
