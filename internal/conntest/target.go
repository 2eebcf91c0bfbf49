package conntest

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// Target is a frontend, and the address and port that clients dial.
type Target struct {
	*served.Frontend
	To netip.AddrPort
}

// AddTarget adds a frontend to targets. One with the unspecified address is dialled at the first address
// of its family that serves NodePorts. Listeners on localhost are not frontends of rules.
func AddTarget(all []Target, f *served.Frontend, nodePorts []netip.Addr) []Target {
	at := f.Address
	if at.IsUnspecified() {
		i := slices.IndexFunc(nodePorts, func(a netip.Addr) bool {
			return model.FamilyOf(a) == model.FamilyOf(at) && !a.IsLoopback() && !a.IsLinkLocalUnicast()
		})
		if i < 0 {
			return all
		}
		at = nodePorts[i]
	}
	if f.OnLocalhost() {
		return all
	}
	return append(all, Target{f, netip.AddrPortFrom(at, f.Frontend.Port)})
}
