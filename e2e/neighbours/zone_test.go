package neighbours

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Conntrack zones separate what is under way: if a reply is in another zone, the
// kernel does not know its connection.
func TestZoneOfOneInterface(t *testing.T) {
	finds(t, finding{Group: "Rules of other programs", Neighbour: "conntrack zones", Verdict: worksIf,
		Case: "another program puts packets of one interface into a zone",
		Note: "only the original direction has the zone (`ct original zone set`). With `ct zone set` replies of the pods, which arrive at " +
			"other interfaces, are in another zone, so they are not translated back."})
	inEitherOrder(t, func(h *host, start func(func())) {
		zone := func(statement string) {
			h.load(`table inet zones
delete table inet zones
table inet zones { chain prerouting { type filter hook prerouting priority raw; iifname uplink ` + statement + `; }; }
`)
		}
		start(func() { zone("ct zone set 7") })
		fromOutside := func(p path) bool { return p.from == h.Client }
		h.unserved("both directions", without(h.paths(), func(p path) bool { return !fromOutside(p) })...)
		h.served("both directions", without(h.paths(), fromOutside)...)
		zone("ct original zone set 7")
		h.served("original direction", h.paths()...)
	})
}

// inZone puts all packets into a zone.
const inZone = `table inet neighbour {
	counter translated {}
	chain prerouting { type filter hook prerouting priority raw; ct zone set 7; }
	chain output { type filter hook output priority raw; ct zone set 7; }
	chain postrouting { type filter hook postrouting priority 300; ct zone 7 ct status dnat counter name translated; }
}
`

// All that passes the node may be in one zone.
func TestZoneOfAll(t *testing.T) {
	finds(t, finding{Group: "Rules of other programs", Neighbour: "conntrack zones", Verdict: works,
		Case: "another program puts all packets into one zone"})
	inEitherOrder(t, func(h *host, start func(func())) {
		start(func() { h.load(inZone) })
		h.served("in a zone", h.paths()...)
		if h.counter("translated") == 0 {
			h.t.Error("no translated packet is in the zone")
		}
	})
}

// Entries in other zones than the default one may belong to others, so nftproxy
// leaves them. Those in the default zone are deleted in the same pass.
func TestZoneKeepsFlows(t *testing.T) {
	finds(t, finding{Group: "Rules of other programs", Neighbour: "conntrack zones", Verdict: fails,
		Case: "a UDP client that keeps its port, when its endpoint is removed",
		Note: "because nftproxy deletes conntrack entries in the default zone only: the client keeps the endpoint until it pauses. Others get another one."})
	h := newHost(t)
	h.load(`table inet zones { chain prerouting { type filter hook prerouting priority raw; iifname uplink ct original zone set 7; }; }`)
	h.startProxy()
	bound := func(p path) flow {
		for {
			for _, f := range h.open(p) {
				if f.network == "udp" && f.peer == h.Pods[0].Name {
					return f
				}
			}
		}
	}
	inZone, inDefault := bound(path{"outside to ClusterIP", h.Client, clusterIP}), bound(path{"pod to ClusterIP", h.Pods[1], clusterIP})
	h.serve(h.Remote[0])
	h.answers("endpoint removed", h.Remote[0].Name, h.paths()...)
	netlab.Eventually(t, patience, func() error {
		answer, err := inDefault.Ask()
		if err == nil && answer.Name != h.Remote[0].Name {
			err = fmt.Errorf("%s: answer of %s, which is no endpoint any more", inDefault.name, answer.Name)
		}
		return err
	})
	h.goOn("other flows have moved", []flow{inZone})
}
