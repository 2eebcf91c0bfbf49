package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestVersionOne: 18.1, 11.26. The plug-in reads documents of a node of the version before, while nodes are updated.
func TestVersionOne(t *testing.T) {
	for _, version := range []string{`"apiVersion":"nftproxy.dev/v1",`, ""} {
		var s api.Status
		err := new(decoder).Decode([]byte("{"+version+`"from":"daemon","healthy":true,"node":"n1","time":"2026-11-01T00:00:00Z","version":"0.2.0","source":"files",
			"lastSync":{"cause":"start"},"seen":{"services":"7"},"services":3,"frontends":4,"counted":true,"warnings":["w"],
			"problems":[{"object":"Service shop/web","reason":"NoEndpoints","message":"m"},{"object":"Balance web","reason":"NoEndpoints","message":"m"},
				{"object":"Affinity map of IPv4","reason":"AffinityFull","message":"m"},{"object":"Machine","reason":"NoRoute","message":"m"}],
			"problemCounts":{"NoEndpoints":2},"notes":[{"object":"Endpoint 10.0.0.1:80 of Service shop/web","reason":"EndpointDrained","message":"m"}],
			"servicePorts":[{"namespace":"shop","name":"web","protocol":"tcp","frontends":[]}]}`), &s)
		if err != nil || s.From != api.FromDaemon || !s.Healthy || s.Node != "n1" || !s.Time.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) || s.Version != "0.2.0" ||
			s.LastSync.Cause != "start" || s.Seen["services"] != "7" || s.Services != 3 || s.Frontends != 4 || !s.Counted || len(s.Warnings) != 1 ||
			s.ProblemCounts[model.LacksEndpoints] != 2 || len(s.ServicePorts) != 1 {
			t.Fatalf("%v, %+v", err, s)
		}
		var objects []string
		for _, p := range append(s.Problems, s.Notes...) {
			objects = append(objects, p.Object.String())
		}
		if got, want := strings.Join(objects, "; "), "Service shop/web; Balance web; Affinity map of IPv4; Machine; Endpoint 10.0.0.1:80 of Service shop/web"; got != want {
			t.Errorf("objects %s, want %s", got, want)
		}
		if name, ok := s.Problems[1].Object.Service(); !ok || name.Namespace != "default" {
			t.Errorf("%v, %v", name, ok)
		}
		var b api.Basis
		if err := new(decoder).Decode([]byte("{"+version+`"version":1,"cluster":true}`), &b); err != nil || !b.Cluster {
			t.Errorf("%v, %+v", err, b)
		}
	}
	var s api.Status
	if err := new(decoder).Decode([]byte(`{"apiVersion":"nftproxy.dev/v2","daemon":{"node":"n1"}}`), &s); err != nil || s.Node != "n1" {
		t.Errorf("%v, %+v", err, s)
	}
	if err := new(decoder).Decode([]byte(`{"apiVersion":"nftproxy.dev/v3"}`), &s); err == nil || !strings.Contains(err.Error(), "reads nftproxy.dev/v2") {
		t.Errorf("a later version: %v", err)
	}
	if err := new(decoder).Decode([]byte(`[`), &s); err == nil {
		t.Error("no document is read")
	}
}
