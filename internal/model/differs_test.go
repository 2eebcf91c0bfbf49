package model

import (
	"net/netip"
	"testing"
	"time"
)

// TestDiffers changes one thing of a route after the other.
func TestDiffers(t *testing.T) {
	route := func() *Route {
		hosts := []Host{{Address: netip.MustParseAddr("10.128.0.1"), Ready: true}, {Address: netip.MustParseAddr("10.128.0.2"), Ready: true}}
		s := &Service{Name: ServiceName{"shop", "web"}, Ports: []ServicePort{{Name: "http", Port: 80}}}
		endpoints := []Endpoint{{Host: &hosts[0], Port: 8080}, {Host: &hosts[1], Port: 8080}}
		return &Route{Frontend: Frontend{netip.MustParseAddr("192.0.2.1"), TCP, 80, 0}, Kind: ExternalIP, Service: s, Port: &s.Ports[0],
			Choice: &Choice{Cluster: endpoints, Local: endpoints[:1], Serving: endpoints}}
	}
	for name, change := range map[string]func(*Route){
		"Service":   func(r *Route) { r.Service.Name.Name = "api" },
		"port":      func(r *Route) { r.Port = &ServicePort{Name: "metrics", Port: 80} },
		"kind":      func(r *Route) { r.Kind = LoadBalancerIP },
		"policy":    func(r *Route) { r.Service.ExternalPolicy = PolicyLocal },
		"affinity":  func(r *Route) { r.Service.AffinityTimeout = time.Second },
		"scheduler": func(r *Route) { r.Service.Scheduler = Random },
		"denied sources": func(r *Route) {
			r.Sources = NewSources(false, nil, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
		},
		"no client": func(r *Route) { r.Sources = NewSources(true, nil, nil) },
		"source ranges": func(r *Route) {
			r.Sources = NewSources(true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, nil)
		},
		"address":       func(r *Route) { r.Choice.Cluster[1].Host.Address = netip.MustParseAddr("10.128.0.3") },
		"endpoint port": func(r *Route) { r.Choice.Cluster[1].Port++ },
		"weight":        func(r *Route) { r.Choice.Cluster[1].Host.Weight = 2 },
		"zone share":    func(r *Route) { r.Choice.Cluster[1].Share = 3 },
		"no endpoint":   func(r *Route) { r.Choice = &Choice{} },
	} {
		changed := route()
		change(changed)
		if c := (&RouteChange{Old: route(), New: changed}); !c.Differs() {
			t.Errorf("%s: no difference", name)
		}
	}
	for name, c := range map[string]*RouteChange{
		"equal":     {Old: route(), New: route()},
		"condition": {Old: route(), New: func() *Route { r := route(); r.Choice.Cluster[0].Host.Terminating = true; return r }()},
		"never":     {},
	} {
		if c.Differs() {
			t.Errorf("%s: a difference", name)
		}
	}
	for _, c := range []*RouteChange{{Old: route()}, {New: route()}} {
		if !c.Differs() {
			t.Error("a route that comes or goes is no difference")
		}
	}
}
