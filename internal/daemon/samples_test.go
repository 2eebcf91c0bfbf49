package daemon

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestAddSamples: 17.15. An endpoint has the samples of its service port, and one without any
// says nothing about them.
func TestAddSamples(t *testing.T) {
	d := &api.Description{Ports: []api.DescribedPort{
		{Name: "http", Protocol: "tcp", Endpoints: []api.DescribedEndpoint{{Address: "10.1.2.2:8080"}, {Address: "10.1.2.3"}}},
		{Name: "http", Protocol: "udp", Endpoints: []api.DescribedEndpoint{{Address: "10.1.2.2:8080"}}},
		{Name: "admin", Protocol: "tcp", Endpoints: []api.DescribedEndpoint{{Address: "10.1.2.2:8080"}}},
	}}
	name := model.ServiceName{Namespace: "shop", Name: "web"}
	addSamples(d, name, func(p model.PortName, e netip.AddrPort) (out [conntrack.Outcomes]int) {
		if p == (model.PortName{Service: name, Port: "http", Protocol: model.TCP}) && e.String() == "10.1.2.2:8080" {
			out[conntrack.Refused], out[conntrack.Answered] = 2, 7
		}
		return out
	}, func(model.PortName) (int, int) { return 0, 0 })
	if got := d.Ports[0].Endpoints[0].Sampled; got == nil || *got != (api.Sampled{Answered: 7, Refused: 2}) {
		t.Errorf("samples %+v, want 7 answered and 2 refused", got)
	}
	if d.Ports[0].Endpoints[1].Sampled != nil || d.Ports[1].Endpoints[0].Sampled != nil || d.Ports[2].Endpoints[0].Sampled != nil {
		t.Errorf("endpoints without samples have some: %+v", d)
	}
}

// TestAddDropped: 17.15. The description has the lost samples of its service ports over TCP.
func TestAddDropped(t *testing.T) {
	d := &api.Description{Ports: []api.DescribedPort{{Name: "http", Protocol: "tcp"}, {Name: "http", Protocol: "udp"}, {Name: "admin", Protocol: "tcp"}}}
	none := func(model.PortName, netip.AddrPort) (out [conntrack.Outcomes]int) { return out }
	addSamples(d, model.ServiceName{Namespace: "shop", Name: "web"}, none, func(p model.PortName) (int, int) {
		if p.Port == "admin" {
			return 0, 5
		}
		return 1, 5
	})
	const want = `1 of 5 sampled connections in the last minute were lost on this machine (port "http"): nftproxy trace shop/web`
	if len(d.Notices) != 1 || d.Notices[0] != want {
		t.Errorf("notices %q, want %q", d.Notices, want)
	}
}
