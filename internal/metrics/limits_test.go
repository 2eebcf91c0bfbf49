package metrics_test

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
)

// TestLimitedConnections: 4.88, 4.92. What each kind of limit has dropped, and what it had no room for, has series of its own,
// by service port, family and kind of frontend. They are absent if it cannot be read.
func TestLimitedConnections(t *testing.T) {
	s := newSet()
	media := model.PortName{Service: model.ServiceName{Namespace: "default", Name: "media"}, Port: "10000-20000/udp", Protocol: model.UDP}
	counts := make(map[report.LimitOwner]uint64)
	want := make(map[string]float64)
	for k, name := range model.LimitKinds {
		counts[report.LimitOwner{Owner: report.Owner{Port: media, Family: model.IPv6, Kind: model.LoadBalancerIP}, Limit: model.LimitKind(k)}] = uint64(10 + k)
		for _, metric := range []string{"limited", "unlimited"} {
			want[`nftproxy_service_connections_`+metric+`_total{frontend="LoadBalancerIP",ip_family="IPv6",limit="`+name+
				`",namespace="default",port="10000-20000/udp",protocol="UDP",service="media"}`] = float64(10 + k)
		}
	}
	var problem error
	read := func() (map[report.LimitOwner]uint64, error) { return counts, problem }
	s.FollowLimits(read, read)
	expect(t, scrape(t, s, "/metrics"), want)
	problem = errors.New("no permission")
	for series := range want {
		want[series] = absent
	}
	expect(t, scrape(t, s, "/metrics"), want)
}
