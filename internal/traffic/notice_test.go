package traffic

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// services are words for a node that serves Services alone.
type services struct{}

func (services) IsBalance(model.ServiceName) bool { return false }
func (services) Words() words.Vocabulary          { return words.Kubernetes }

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
		failure := Failure{Outcome: conntrack.Dropped, Ports: []model.PortName{port}, Families: c.families, Samples: 53, Failed: 52}
		p := failure.Notice(services{}, func(f model.Family) []string { return c.filters[f] })
		if want := (model.Notice{Object: model.ServiceName{Namespace: "shop", Name: "web"}.Object(), Reason: model.ConnectionsDropped, Message: c.want}); p != want {
			t.Errorf("got %+v\nwant %+v", p, want)
		}
	}
}

// TestOfOneClient: 17.12. A problem does not blame endpoints, or this machine, for the failures of one client alone.
func TestOfOneClient(t *testing.T) {
	f := Failure{Outcome: conntrack.Unanswered, Ports: []model.PortName{{Service: model.ServiceName{Namespace: "shop", Name: "web"}, Port: "http"}},
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.1.2.2:80"), netip.MustParseAddrPort("10.1.2.3:80")}, Families: model.Families[:1], Samples: 6, Failed: 6}
	f.Clients = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	if got, want := f.Notice(services{}, nil).Message, `only one client fails: 2 endpoints, 10.1.2.2:80 and others, did not answer 6 of 6 sampled connections in the last minute (port "http")`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f.Outcome, f.Endpoints = conntrack.Dropped, nil
	if got, want := f.Notice(services{}, nil).Message, `only one client fails: 6 of 6 sampled connections in the last minute over IPv4 were lost on this machine (port "http"): nftproxy trace shop/web`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
