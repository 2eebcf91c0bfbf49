package report

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// addSettings adds the settings that the frontends of the Service share, as far as their
// origin knows them.
func addSettings(s *api.Description, all []*served.Frontend) {
	for _, f := range all {
		if f.Kind != model.ClusterIP && !f.Unknown.Has(served.ExternalPolicy) {
			s.ExternalPolicy = f.ExternalPolicy.String()
		}
		if !f.Unknown.Has(served.Scheduler) {
			s.Scheduler = f.Scheduler.String()
		}
		if n := f.TableSize(); n > 0 && (s.Maglev == nil || s.Maglev.Slots < n) {
			s.Maglev = &api.Maglev{Slots: n}
		}
		s.AffinitySeconds, s.AllPorts = max(s.AffinitySeconds, f.Affinity.Seconds()), s.AllPorts || f.Together
		if c := f.ClientAddresses(); c != model.DefaultClientAddresses {
			s.ClientAddresses = c.String()
		}
		s.Limits = limitsOf(f.Limits)
	}
	addClientLists(s, all)
}

// addClientLists adds the lists of clients. The lists of load balancer addresses are the source
// ranges if other frontends have another list.
func addClientLists(s *api.Description, all []*served.Frontend) {
	var balanced, others []*served.Frontend
	for _, f := range all {
		if f.Kind == model.LoadBalancerIP {
			balanced = append(balanced, f)
		} else {
			others = append(others, f)
		}
	}
	if len(others) == 0 {
		balanced, others = nil, balanced
	}
	own, ofBalancers := sourcesOf(others), sourcesOf(balanced)
	if own != nil {
		s.DeniedSources = own.Denied
		if own.Limited {
			s.AllowedSources = append([]netip.Prefix{}, own.Allowed...) // not nil
		}
	}
	if ofBalancers != nil && ofBalancers.Limited && (own == nil || !slices.Equal(own.Allowed, ofBalancers.Allowed)) {
		s.SourceRanges = append([]netip.Prefix{}, ofBalancers.Allowed...)
	}
}

// sourcesOf returns the clients that may connect to any of some frontends, of all
// families.
func sourcesOf(frontends []*served.Frontend) *model.Sources {
	limited := slices.ContainsFunc(frontends, func(f *served.Frontend) bool { return f.Sources != nil && f.Sources.Limited })
	var allowed, denied []netip.Prefix
	for _, f := range frontends {
		switch {
		case f.Sources == nil || !f.Sources.Limited: // of this family
			allowed = append(allowed, netip.PrefixFrom(model.Wildcard(model.FamilyOf(f.Address)), 0))
		default:
			allowed = append(allowed, f.Sources.Allowed...)
		}
		if f.Sources != nil {
			denied = append(denied, f.Sources.Denied...)
		}
	}
	return model.NewSources(limited, allowed, denied)
}

func limitsOf(l model.Limits) (out []api.Limit) {
	for k := range model.LimitKinds {
		if text := l.Text(model.LimitKind(k)); text != "" {
			out = append(out, api.Limit{Kind: model.LimitKind(k).String(), Admits: text})
		}
	}
	return out
}
