package observe

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// TestFailureEvents: 17.14. Each Service of an endpoint that fails has the event, once.
func TestFailureEvents(t *testing.T) {
	name := func(s string) model.ServiceName { return model.ServiceName{Namespace: "shop", Name: s} }
	got := failureEvents([]traffic.Failure{{
		Outcome: conntrack.Refused, Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.1.2.2:8081")}, Samples: 14, Failed: 14,
		Ports: []model.PortName{{Service: name("api"), Port: "a"}, {Service: name("web"), Port: "a"}, {Service: name("web"), Port: "b"}},
	}}, func(f *traffic.Failure) model.Notice { return f.Notice((&feature.Node{}).Serving(), nil) })
	for _, s := range []string{"api", "web"} {
		if text := got[events.Failure{Service: name(s), Reason: "ConnectionsRefused"}]; !strings.HasPrefix(text, "10.1.2.2:8081 refused 14 of 14 ") {
			t.Errorf("%s: %q", s, text)
		}
	}
	if len(got) != 2 {
		t.Errorf("events %v, want two", got)
	}
}
