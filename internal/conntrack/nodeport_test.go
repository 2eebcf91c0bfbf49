package conntrack

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 9.3, 9.4, 9.5: a flow to a NodePort on one of several addresses of the node
// begins to be translated when the address serves, follows the endpoints, and is
// forgotten when the address serves no longer. Flows to other addresses of the
// node stay.
func TestNodePortOnSeveralAddresses(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1]}
	second := map[model.Family]netip.Addr{model.IPv4: addr("198.18.7.1"), model.IPv6: addr("2001:db8:7::1")}
	for _, a := range second {
		if err := x.Node.AddAddress(a); err != nil {
			t.Fatal(err)
		}
	}
	first := []netip.Addr{x.Node.IPv4, x.Node.IPv6}
	x.serving = first
	x.sync(web)
	for _, f := range model.Families {
		to := netip.AddrPortFrom(second[f], web.nodePort(x.Lab, f).Port())
		x.serving = first
		x.sync(web)
		kept := x.open("udp", web.nodePort(x.Lab, f))
		flow := x.unanswered(to)

		x.serving = append(first[:2:2], second[f])
		x.sync(web)
		x.answersFrom(flow, x.Pods[0], "the address serves")
		x.sync(web)
		if x.lists != 0 {
			t.Errorf("%d listings though nothing has changed", x.lists)
		}

		web.pods = x.Pods[1:]
		x.sync(web)
		x.answersFrom(flow, x.Pods[1], "other endpoint")
		x.answersFrom(kept, x.Pods[1], "other endpoint, first address")

		x.serving = first
		x.sync(web)
		if got, ok := x.flowTo(model.UDP, to); ok || x.deleted != 1 {
			t.Errorf("%d flows deleted after the address has left, there is still %+v", x.deleted, got)
		}
		if _, ok := x.flowTo(model.UDP, web.nodePort(x.Lab, f)); !ok {
			t.Errorf("the flow to another address is gone")
		}
		web.pods = x.Pods[:1]
		x.sync(web)
	}
}
