package workload

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// limits returns limits of each kind by two bits of a choice. Different choices have
// common values.
func limits(choice byte) model.Limits {
	rates := []model.Rate{{}, {Amount: 10, Burst: 10}, {Amount: 10, Burst: 30, Unit: model.PerMinute}, {}}
	counts := []uint32{0, 20, 1000, 0}
	return model.Limits{
		Connections: counts[choice&3], ConnectionsPerClient: counts[choice>>2&3],
		Rate: rates[choice>>4&3], RatePerClient: rates[choice>>6&3],
	}
}

// clientRanges are ranges of clients that contain each other.
var clientRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("192.0.2.7/32"),
	netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("0.0.0.0/0"),
}

// sources returns lists of clients, none in half of the cases.
func sources(choice byte) *model.Sources {
	if choice&1 == 0 {
		return nil
	}
	some := func(bits byte) (out []netip.Prefix) {
		for i, p := range clientRanges {
			if bits>>i&1 > 0 {
				out = append(out, p)
			}
		}
		return out
	}
	return model.NewSources(choice&2 > 0, some(choice>>2), some(choice>>5))
}
