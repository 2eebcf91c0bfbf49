package test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestObservedSCTP: 16.2, 16.8, 17.16. Connections over SCTP are observed, also to ranges of ports: those that
// rules refuse, and those whose endpoint does not answer.
func TestObservedSCTP(t *testing.T) {
	w := newWatched(t, map[string]string{"nftproxy.dev/ports": "9000-9010/sctp"}, "--observe=connections")
	denied := service{Name: "denied", N: 5, Pods: w.Pods[:1], Annotations: listed(nil, []string{"0.0.0.0/0", "::/0"})}
	w.write(w.web, w.ending, w.dead, w.mute, denied)
	for _, f := range model.Families {
		web := w.web.clusterIP(f)
		for i, c := range []struct {
			service, reason string
			to              netip.AddrPort
			endpoint        uint16 // its port; zero: none
		}{
			{"denied", "denied", denied.clusterIP(f), 0},
			{"web", "unknown-port", netip.AddrPortFrom(web.Addr(), 9011), 0},
			{"web", model.Unanswered, web, echoPort},
			{"web", model.Unanswered, netip.AddrPortFrom(web.Addr(), 9007), 9007},
		} {
			n := 0
			eventually(t, func() error {
				if c.endpoint == 0 || n == 0 { // the rules may be late, and samples limited
					w.sendFrame(firstPacket(model.SCTP, netip.AddrPortFrom(w.Client.Address(f), uint16(20000+i)), c.to))
				}
				n++
				for _, e := range w.observed("service=default/" + c.service).Events {
					endpoint := ""
					if c.endpoint != 0 {
						endpoint = netip.AddrPortFrom(w.Pods[0].Address(f), c.endpoint).String()
					}
					if e.Protocol == "sctp" && e.Frontend == c.to.String() && e.Reason == c.reason && e.Endpoint == endpoint {
						return nil
					}
				}
				return fmt.Errorf("no event about %+v", c)
			})
		}
	}
}
