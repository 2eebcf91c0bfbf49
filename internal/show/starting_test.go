package show

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestStarting: 3.72. Text about endpoints that start slowly: the first ones, and how many more.
func TestStarting(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	starting := api.Starting{Part: 0.4, Full: now.Add(20 * time.Second)}
	r := &api.Status{From: api.FromDaemon, Healthy: true, Served: api.Served{StartingCount: 7}}
	for _, address := range []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80"} {
		r.Starting = append(r.Starting, api.StartingServer{ServiceText: model.ServiceText{Service: "default/web", Balance: true}, Address: address, Starting: starting})
	}
	for all, want := range map[bool]string{
		false: "starting   10.0.0.1:80 of Balance web, 40 % of its weight, all of it in 20s|10.0.0.2|10.0.0.3|and 4 more: nftproxy status -A",
		true:  "10.0.0.5:80 of Balance web, 40 % of its weight, all of it in 20s|and 2 more: nftproxy status -A",
	} {
		var b strings.Builder
		if err := Status(&b, r, View{Now: now, All: all}); err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(want, "|") {
			if !strings.Contains(b.String(), part) {
				t.Errorf("all %t: no %q in\n%s", all, part, b.String())
			}
		}
	}
	e := &api.DescribedEndpoint{Address: "10.0.0.1:80", State: "ready", Weight: 3, Starting: &starting}
	if got := weightText(e); got != "3 (40 % now)" {
		t.Errorf("weight %q", got)
	}
}
