package metrics_test

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
)

// TestRefusedConnections: 16.6. Each reason and Service has a series; connections to no Service
// have empty names. The series are absent if they cannot be read.
func TestRefusedConnections(t *testing.T) {
	s := newSet()
	counts := map[report.RefusalOwner]uint64{
		{Reason: model.UnusedAddress}: 9,
		{Reason: model.Denied, Service: model.ServiceName{Namespace: "shop", Name: "web"}}: 12,
	}
	want := map[string]float64{
		`nftproxy_refused_connections_total{namespace="",reason="unused-address",service=""}`: 9,
		`nftproxy_refused_connections_total{namespace="shop",reason="denied",service="web"}`:  12,
	}
	var problem error
	s.FollowRefusals(func() (map[report.RefusalOwner]uint64, error) { return counts, problem })
	expect(t, scrape(t, s, "/metrics"), want)
	problem = errors.New("no permission")
	for series := range want {
		want[series] = absent
	}
	expect(t, scrape(t, s, "/metrics"), want)
}
