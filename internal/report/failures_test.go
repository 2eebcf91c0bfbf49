package report

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// TestOfDropped: 17.12. The problem of connections that are lost on the machine names what may drop them, each filter once, a few
// of many, and the command for the next step.
func TestOfDropped(t *testing.T) {
	port := model.PortName{Service: model.ServiceName{Namespace: "shop", Name: "web"}, Port: "http"}
	for _, c := range []struct {
		families []model.Family
		filters  map[model.Family][]string
		want     string
	}{
		{model.Families[:], nil, `52 of 53 sampled connections in the last minute were lost on this machine (port "http"): nftproxy trace shop/web`},
		{model.Families[1:], map[model.Family][]string{model.IPv4: {"a"}}, `52 of 53 sampled connections in the last minute over IPv6 were lost on this machine (port "http"): nftproxy trace shop/web`},
		{model.Families[:], map[model.Family][]string{model.IPv4: {"a", "b"}, model.IPv6: {"b", "c", "d"}},
			`52 of 53 sampled connections in the last minute were lost on this machine (port "http"); a, or b, or c may drop them: nftproxy trace shop/web`},
	} {
		p := OfFailure(&traffic.Failure{Outcome: conntrack.Dropped, Ports: []model.PortName{port}, Families: c.families, Samples: 53, Failed: 52}, nil,
			func(f model.Family) []string { return c.filters[f] })
		if want := (model.Notice{Object: model.ServiceName{Namespace: "shop", Name: "web"}.Object(), Reason: model.ConnectionsDropped, Message: c.want}); p != want {
			t.Errorf("got %+v\nwant %+v", p, want)
		}
	}
}

// TestAddDropped: 17.15. The description has the lost samples of its service ports over TCP.
func TestAddDropped(t *testing.T) {
	d := &api.Description{Ports: []api.DescribedPort{{Name: "http", Protocol: "tcp"}, {Name: "http", Protocol: "udp"}, {Name: "admin", Protocol: "tcp"}}}
	addDropped(d, model.ServiceName{Namespace: "shop", Name: "web"}, func(p model.PortName) (int, int) {
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

// TestOfOneClient: 17.12. A problem does not blame endpoints, or this machine, for the failures of one client alone.
func TestOfOneClient(t *testing.T) {
	f := traffic.Failure{Outcome: conntrack.Unanswered, Ports: []model.PortName{{Service: model.ServiceName{Namespace: "shop", Name: "web"}, Port: "http"}},
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.1.2.2:80"), netip.MustParseAddrPort("10.1.2.3:80")}, Families: model.Families[:1], Samples: 6, Failed: 6}
	f.Clients = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	if got, want := OfFailure(&f, nil, nil).Message, `only one client fails: 2 endpoints, 10.1.2.2:80 and others, did not answer 6 of 6 sampled connections in the last minute (port "http")`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f.Outcome, f.Endpoints = conntrack.Dropped, nil
	if got, want := OfFailure(&f, nil, nil).Message, `only one client fails: 6 of 6 sampled connections in the last minute over IPv4 were lost on this machine (port "http"): nftproxy trace shop/web`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
