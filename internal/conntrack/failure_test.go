package conntrack

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// failing sets what happens to established connections through all routes.
func failing(o model.OnFailure, r *model.Routing) *model.Routing {
	for i := range r.Routes {
		r.Routes[i].Service = &model.Service{Extras: &model.Extras{OnFailure: o}}
	}
	return r
}

// TestOnFailure: 9.28. The Service decides about established TCP connections to an endpoint
// that is gone, whatever the node does with others, and without it the node. So it is when the
// setting comes and when the frontend goes; a setting that goes ends nothing.
func TestOnFailure(t *testing.T) {
	const web, other = "10.96.0.1:80", "10.96.0.2:80"
	one, both := "10.0.0.1:80", "10.0.0.1:80 10.0.0.3:80"
	for _, tcp := range []bool{false, true} {
		for _, o := range []model.OnFailure{model.DefaultOnFailure, model.KeepOnFailure, model.CloseOnFailure} {
			for name, c := range map[string]struct {
				then, now *model.Routing
				ends      bool
			}{
				"an endpoint goes":    {failing(o, routing(both, web)), failing(o, routing(one, web)), o.Closes(tcp)},
				"the frontend goes":   {failing(o, routing(both, web)), failing(o, routing(both, other)), o.Closes(tcp)},
				"the setting comes":   {failing(model.KeepOnFailure, routing(one, web)), failing(o, routing(one, web)), o.Closes(tcp)},
				"the setting goes":    {failing(o, routing(both, web)), failing(model.KeepOnFailure, routing(one, web)), false},
				"the endpoint serves": {failing(o, routing(one, web)), failing(o, routing(both, web)), false},
			} {
				t.Run(fmt.Sprintf("TCP %v, %s, %s", tcp, o, name), func(t *testing.T) {
					k := &broken{}
					cleaner := &follower{Cleaner: newCleaner(k, &bytes.Buffer{}, Config{TCP: tcp})}
					cleaner.follow(c.then)
					k.deleted = nil
					gone := flow(model.TCP, web, "10.0.0.3:80")
					k.flows = []Flow{gone, flow(model.TCP, web, web), flow(model.TCP, "10.96.0.9:80", "10.0.0.3:80")}
					cleaner.follow(c.now)
					if ended := slices.Equal(k.deleted, []Flow{gone}); ended != c.ends || !ended && len(k.deleted) > 0 {
						t.Errorf("deleted %+v, want the connection to the endpoint: %v", k.deleted, c.ends)
					}
				})
			}
		}
	}
}

// A client that may no longer connect keeps its TCP connections (4.82) unless the node ends
// them: the setting is about endpoints.
func TestOnFailureOfDeniedClient(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		r := failing(model.CloseOnFailure, routing("10.0.0.1:80", "10.96.0.1:80"))
		for i := range r.Routes {
			sources := model.NewSources(true, nil, nil)
			r.Routes[i].Sources, r.Routes[i].Service.Extras.Sources = sources, sources
		}
		k := &broken{flows: []Flow{flow(model.TCP, "10.96.0.1:80", "10.0.0.1:80")}}
		cleaner := &follower{Cleaner: newCleaner(k, &bytes.Buffer{}, Config{TCP: tcp})}
		if cleaner.follow(r); (len(k.deleted) > 0) != tcp {
			t.Errorf("TCP %v: deleted %+v", tcp, k.deleted)
		}
	}
}

// 9.28: a Service without the setting costs no listing, and one with it no listing that its
// endpoints do not ask for.
func TestOnFailureListings(t *testing.T) {
	for o, want := range map[model.OnFailure]int{model.DefaultOnFailure: 1, model.KeepOnFailure: 1, model.CloseOnFailure: 2} {
		r := failing(o, routing("10.0.0.1:80", "10.96.0.1:80")) // of UDP and TCP
		k := &broken{}
		cleaner := &follower{Cleaner: newCleaner(k, &bytes.Buffer{}, Config{})}
		for range 3 {
			cleaner.follow(r)
		}
		if k.lists != want {
			t.Errorf("%s: %d listings, want %d", o, k.lists, want)
		}
	}
}
