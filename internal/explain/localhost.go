package explain

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Through returns the packet that a listener on localhost sends for another one, and that
// one; nil: there is no listener. connectsTo returns where the listener of a frontend
// connects to.
func (p Packet) Through(connectsTo func(model.Frontend) (netip.AddrPort, bool), local []netip.Addr) (sent Packet, asked *Packet) {
	fromNode := p.FromNode || !p.Source.IsValid() || p.Source.IsLoopback()
	if !fromNode || p.Protocol != model.TCP || !p.Frontend().OnLocalhost() {
		return p, nil
	}
	to, ok := connectsTo(p.Frontend())
	if !ok {
		return p, nil
	}
	return Packet{Destination: to.Addr(), Protocol: p.Protocol, Port: to.Port()}.SentBy(local), &p
}

// Listener returns where the listener of a NodePort on localhost connects to; false: there
// is none.
func Listener(router *model.Router, f model.Frontend) (netip.AddrPort, bool) {
	to, route := router.BehindLocalhost(f)
	return netip.AddrPortFrom(to.Address, to.Port), route != nil
}
