package drain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// router returns a router with shop/web (ports 80 and 81, three endpoints) and shop/api
// (port 80 at endpoint 3).
func router() *model.Router {
	service := func(name string, number byte, ports ...uint16) *model.Service {
		s := &model.Service{Name: model.ServiceName{Namespace: "shop", Name: name}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, number})}}
		for _, p := range ports {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint(p), Protocol: model.TCP, Port: p})
		}
		return s
	}
	wide := service("wide", 3, 80)
	wide.Extras = &model.Extras{Ranges: []model.PortRange{{ServicePort: model.ServicePort{Name: "1000-2000/tcp:5000", Protocol: model.TCP, Port: 1000}, Last: 2000, Target: 5000}}}
	hosts := slice("wide", 2, 80)
	for i := range hosts.Hosts {
		hosts.Hosts[i].Address = netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)})
	}
	hosts.Service = "wide"
	api := slice("api", 3, 80)
	api.Service, api.Hosts = "api", api.Hosts[2:]
	r := model.NewRouter()
	r.Configure(model.Config{}, nil, nil)
	r.SetServices(map[model.ServiceName]model.ServiceState{
		{Namespace: "shop", Name: "web"}:  {Service: service("web", 1, 80, 81), Slices: []*model.EndpointSlice{slice("web", 3, 80, 81)}},
		{Namespace: "shop", Name: "wide"}: {Service: wide, Slices: []*model.EndpointSlice{hosts}},
		{Namespace: "shop", Name: "api"}:  {Service: service("api", 2, 80), Slices: []*model.EndpointSlice{api}},
	})
	return r
}

// 9.23: the Services of an endpoint, how many endpoints each has left, and what stops.
func TestAsk(t *testing.T) {
	r := router()
	for question, want := range map[string]string{
		"10.0.0.1":                     "shop/web 2/3",
		"10.0.0.3":                     "shop/api 0/1 reject; shop/web 2/3",
		"10.0.0.3 of shop/web":         "shop/web 2/3",
		"10.0.0.3:81":                  "shop/web 2/3",
		"10.0.0.3:82":                  "did you mean 10.0.0.3:80 10.0.0.3:81",
		"10.0.0.33":                    "did you mean 10.0.0.3 10.0.0.1 10.0.0.2",
		"10.0.1.1":                     "shop/wide 1/2",
		"10.0.1.1:80":                  "shop/wide 1/2",
		"10.0.1.1:5000":                "did you mean 10.0.1.1 10.0.1.1:80",
		"fd00::1":                      "",
		"10.0.0.1, 10.0.0.2, 10.0.0.3": "shop/web 0/3 reject | shop/web 0/3 reject | shop/api 0/1 reject; shop/web 0/3 reject",
		"10.0.0.1:80, 10.0.0.2:81":     "shop/web 2/3 | shop/web 2/3",
	} {
		var targets []Target
		for _, text := range strings.Split(question, ", ") {
			targets = append(targets, target(t, text))
		}
		var answers []string
		for _, a := range Ask(targets, nil, r, nil) {
			var parts []string
			for _, e := range a.Services {
				parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %d/%d %s", e.Service, e.Left, e.Endpoints, e.Stops)))
				if e.Drained || len(e.Frontends) == 0 {
					t.Errorf("%s: %+v", question, e)
				}
			}
			if len(a.DidYouMean) > 0 {
				parts = append(parts, "did you mean "+strings.Join(a.DidYouMean, " "))
			}
			answers = append(answers, strings.Join(parts, "; "))
		}
		if got := strings.Join(answers, " | "); got != want {
			t.Errorf("%s: %s, want %s", question, got, want)
		}
	}
}

// Completion offers endpoints with ports and without, by how they begin.
func TestEndpoints(t *testing.T) {
	r := router()
	for begin, want := range map[string]string{
		"10.0.0.1": "10.0.0.1 10.0.0.1:80 10.0.0.1:81",
		"10.0.1.":  "10.0.1.1 10.0.1.1:80 10.0.1.2 10.0.1.2:80",
		"fd":       "",
	} {
		if got := strings.Join(EndpointsLike(begin, r), " "); got != want {
			t.Errorf("%q: %s, want %s", begin, got, want)
		}
	}
	if all := EndpointsLike("", r); len(all) != 13 {
		t.Errorf("all: %q", all)
	}
}

// An endpoint that is drained already stops nothing more.
func TestAskDrained(t *testing.T) {
	r := router()
	name := model.ServiceName{Namespace: "shop", Name: "api"}
	v := r.View(name)
	r.SetServices(map[model.ServiceName]model.ServiceState{name: list(t, "10.0.0.3").Edit(name, model.ServiceState{Service: v.Service, Slices: v.Slices})})
	got := Ask([]Target{target(t, "10.0.0.3 of shop/api")}, list(t, "10.0.0.3"), r, nil)
	if e := got[0].Services[0]; !e.Drained || e.Stops != "" || e.Left != 0 || e.Endpoints != 1 {
		t.Errorf("%+v", e)
	}
}

// 9.23: what the list drains counts, whether it is in force or not, and what it does not
// drain any more does not.
func TestAskBeforeTheListIsInForce(t *testing.T) {
	for _, c := range []struct{ applied, list, question, want string }{
		{"", "10.0.0.1, 10.0.0.2", "10.0.0.3 of shop/web", "0/3 reject"},
		{"10.0.0.1, 10.0.0.2", "", "10.0.0.3 of shop/web", "2/3 "},
		{"10.0.0.1, 10.0.0.2", "10.0.0.1, 10.0.0.3", "10.0.0.2", "0/3 reject"},
		{"", "10.0.0.1, 10.0.0.2, 10.0.0.3", "10.0.0.3 of shop/web", "0/3 "},
		{"10.0.0.1:80", "10.0.0.2:81", "10.0.0.3:80 of shop/web", "2/3 "},
		{"10.0.0.1:80, 10.0.0.2", "10.0.0.1, 10.0.0.2:80", "10.0.0.3:80 of shop/web", "0/3 reject"},
		{"10.0.1.1", "10.0.1.2", "10.0.1.1", "0/2 reject"},
		{"10.0.1.1:80", "", "10.0.1.2", "1/2 "},
	} {
		r := router()
		applied, latest := List(nil), List(nil)
		if c.applied != "" {
			applied = list(t, strings.Split(c.applied, ", ")...)
		}
		if c.list != "" {
			latest = list(t, strings.Split(c.list, ", ")...)
		}
		states := make(map[model.ServiceName]model.ServiceState)
		for _, name := range r.Names() {
			v := r.View(name)
			states[name] = applied.Edit(name, model.ServiceState{Service: v.Service, Slices: v.Slices})
		}
		r.SetServices(states)
		e := Ask([]Target{target(t, c.question)}, latest, r, nil)[0].Services[0]
		if got := fmt.Sprintf("%d/%d %s", e.Left, e.Endpoints, e.Stops); got != c.want {
			t.Errorf("%q in force, %q in the file: %s: %s, want %s", c.applied, c.list, c.question, got, c.want)
		}
	}
}
