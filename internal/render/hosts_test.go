package render

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// hostsAt returns endpoints of hosts with these numbers.
func hostsAt(port uint16, numbers ...int) []model.Endpoint {
	var out []model.Endpoint
	for _, i := range numbers {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		out = append(out, model.Endpoint{Host: &model.Host{Address: a}, Port: port})
	}
	return out
}
