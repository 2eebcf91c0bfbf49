package slowstart

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/series"
)

// serving has these routes.
type serving struct {
	feature.Serving
	routes []model.Route
}

func (s serving) Routes(yield func(*model.Route) bool) {
	for i := range s.routes {
		if !yield(&s.routes[i]) {
			return
		}
	}
}

// TestMetric: 3.72. However many Services have endpoints that start slowly, the number of series is
// limited, and their sum has all.
func TestMetric(t *testing.T) {
	n := new(feature.Node)
	collectors := Kind{}.New(n).(feature.Counter).Collectors()
	if found := series.Expect(t, nil, collectors...); len(found) > 0 {
		t.Errorf("without a Service: %v", found)
	}
	n.Serve(serving{routes: manyStarting(5000)})
	found := series.Expect(t, map[string]float64{
		`nftproxy_slow_start_endpoints{namespace="shop",service="web-4999"}`: 2,
		`nftproxy_slow_start_endpoints{namespace="shop",service="web-0098"}`: 1,
		`nftproxy_slow_start_endpoints{namespace="shop",service="web-0099"}`: -1,
		`nftproxy_slow_start_endpoints{namespace="",service=""}`:             4900,
	}, collectors...)
	if len(found) != 101 {
		t.Errorf("%d series", len(found))
	}
}

// manyStarting returns the routes of so many Services with an endpoint that starts slowly. The last one has two.
func manyStarting(n int) []model.Route {
	s := new(model.Snapshot)
	for i := range n {
		name := model.ServiceName{Namespace: "shop", Name: fmt.Sprintf("web-%04d", i)}
		service := &model.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, Extras: &model.Extras{SlowStart: time.Minute},
		}
		slice := &model.EndpointSlice{Namespace: "shop", Name: name.Name + "-1", Service: name.Name, Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}}
		for j := range 2 + i/(n-1) {
			a := netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)})
			slice.Hosts = append(slice.Hosts, model.Host{Address: a, Ready: true, Serving: true})
			if j == 0 { // has its whole weight: one alone would not start slowly
				continue
			}
			service.Extras.Starting = append(service.Extras.Starting, model.Starting{Endpoint: netip.AddrPortFrom(a, 8080), Part: 3})
		}
		s.Services, s.Slices = append(s.Services, service), append(s.Slices, slice)
	}
	return model.Resolve(s, model.Config{}).Routes
}
