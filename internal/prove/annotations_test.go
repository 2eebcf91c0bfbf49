package prove

import (
	"math"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 3.68: an endpoint of a Service with ranges starts once, though it has an entry for its port and one for all ports.
func TestStartedOnce(t *testing.T) {
	slow, other := netip.MustParseAddrPort("10.1.0.1:80"), netip.MustParseAddrPort("10.1.0.2:80")
	for _, starting := range [][]model.Starting{
		{{Endpoint: netip.AddrPortFrom(slow.Addr(), 0), Part: 5}},
		{{Endpoint: netip.AddrPortFrom(slow.Addr(), 0), Part: 5}, {Endpoint: slow, Part: 5}},
	} {
		s := &model.Service{Extras: &model.Extras{Starting: starting}}
		got := new(World).started(s, []endpoint{{at: slow, weight: 1}, {at: other, weight: 1}})
		if share := got[0].weight; math.Abs(share-1.0/3) > 1e-9 {
			t.Errorf("%d entries: the share is %.4f, not a third", len(starting), share)
		}
	}
}
