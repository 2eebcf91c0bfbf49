package report

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// pingsOf returns the addresses of a Service whose echo requests may be answered.
func pingsOf(echoes []model.ViewedEcho) (out []api.Ping) {
	for _, e := range echoes {
		p := api.Ping{Address: e.Address.String(), Inside: e.Inside, Outside: e.Outside}
		if e.Winner != nil {
			p.DecidedBy = e.Winner.Service.Name.String()
		}
		out = append(out, p)
	}
	return out
}

// pingsIn returns the addresses of a Service that the rules of a table answer echo requests
// for.
func pingsIn(t *nft.Table, name model.ServiceName) (out []api.Ping) {
	answered, inside := t.Set(nft.EchoSet), t.Set(nft.EchoInsideSet)
	if answered == nil || inside == nil {
		return nil
	}
	for i := range answered.Elements {
		e := &answered.Elements[i]
		if port, _ := nft.ParseComment(e.Comment); port.Service != name {
			continue
		}
		_, only := inside.Find(e.Key.Frontend())
		out = append(out, api.Ping{Address: e.Key.Address.String(), Inside: true, Outside: !only})
	}
	slices.SortFunc(out, func(a, b api.Ping) int {
		return netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address))
	})
	return out
}
