package describe

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// pingsOf returns the addresses of a Service whose echo requests may be answered.
func pingsOf(echoes []model.ViewedEcho) (out []Ping) {
	for _, e := range echoes {
		p := Ping{Address: e.Address.String(), Inside: e.Inside, Outside: e.Outside}
		if e.Winner != nil {
			p.DecidedBy = e.Winner.Service.Name.String()
		}
		out = append(out, p)
	}
	return out
}

// pingsIn returns the addresses of a Service that the rules of a table answer echo requests
// for.
func pingsIn(t *nft.Table, name model.ServiceName) (out []Ping) {
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
		out = append(out, Ping{Address: e.Key.Address.String(), Inside: true, Outside: !only})
	}
	slices.SortFunc(out, func(a, b Ping) int {
		return netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address))
	})
	return out
}

// pings prints who gets answers to echo requests, with the addresses for which that is the
// same.
func (p *printer) pings(s *Service) {
	var texts []string
	addresses := make(map[string][]string)
	for _, a := range s.Ping {
		text := a.text()
		if addresses[text] == nil {
			texts = append(texts, text)
		}
		addresses[text] = append(addresses[text], a.Address)
	}
	for _, text := range texts {
		p.Fact("ping", "%s: %s", strings.Join(addresses[text], ", "), text)
	}
}

func (p *Ping) text() string {
	who := "answered by this node"
	switch {
	case !p.Inside:
		who = "not answered, because no endpoint takes connections"
	case !p.Outside:
		who = "answered by this node inside of the cluster only, because it has no endpoint"
	}
	if p.DecidedBy != "" {
		who += "; decided by " + p.DecidedBy + ", which has the same address"
	}
	return who
}
