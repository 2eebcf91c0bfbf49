package describe

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// Limit is a connection limit of each frontend.
type Limit struct {
	Kind string `json:"kind"` // rate-per-client, rate, connections-per-client or connections
	// Admits says what is not dropped, for example "100 new connections per second".
	Admits string `json:"admits"`
	// Dropped are connections to all frontends, since the limit was switched on.
	Dropped *uint64 `json:"dropped,omitempty"`
}

func limitsOf(l model.Limits) (out []Limit) {
	for k := range model.LimitKinds {
		if text := l.Text(model.LimitKind(k)); text != "" {
			out = append(out, Limit{Kind: model.LimitKind(k).String(), Admits: text})
		}
	}
	return out
}

// AddLimitDrops adds what the limits of each frontend have dropped, by their kind.
func (s *Service) AddLimitDrops(drops map[model.FrontendID]map[string]uint64) {
	sums := make(map[string]uint64)
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if f := &p.Frontends[j]; f.ServedBy == "" {
				f.Dropped = drops[p.frontend(f).ID()]
				for kind, n := range f.Dropped {
					sums[kind] += n
				}
			}
		}
	}
	for i := range s.Limits {
		n := sums[s.Limits[i].Kind]
		s.Limits[i].Dropped = &n
	}
}

func (p *printer) limits(s *Service) {
	for _, l := range s.Limits {
		if l.Dropped == nil {
			p.Fact(setting.Limits.Label, "%s to each address and port", l.Admits)
		} else {
			p.Fact(setting.Limits.Label, "%s to each address and port; %d dropped", l.Admits, *l.Dropped)
		}
	}
}
