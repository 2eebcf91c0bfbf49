package report

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

func limitsOf(l model.Limits) (out []api.Limit) {
	for k := range model.LimitKinds {
		if text := l.Text(model.LimitKind(k)); text != "" {
			out = append(out, api.Limit{Kind: model.LimitKind(k).String(), Admits: text})
		}
	}
	return out
}

// AddLimitDrops adds what the limits of each frontend have dropped, by their kind.
func AddLimitDrops(s *api.Description, drops map[model.FrontendID]map[string]uint64) {
	sums := make(map[string]uint64)
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Frontends {
			if f := &p.Frontends[j]; f.ServedBy == "" {
				f.Dropped = drops[p.Frontend(f).ID()]
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
