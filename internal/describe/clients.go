package describe

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// clients prints who may connect.
func (p *printer) clients(s *Service) {
	if len(s.SourceRanges) > 0 {
		p.Fact(setting.AllowedClients.Label, "%s at load balancer IPs", ranges(s.SourceRanges))
	}
	switch {
	case s.AllowedSources == nil:
	case len(s.AllowedSources) == 0:
		p.Fact(setting.AllowedClients.Label, "no client")
	default:
		p.Fact(setting.AllowedClients.Label, "%s%s", ranges(s.AllowedSources), s.closedFamily())
	}
	if len(s.DeniedSources) > 0 {
		p.Fact(setting.DeniedClients.Label, "%s", ranges(s.DeniedSources))
	}
}

// closedFamily returns a remark if a family of the Service has no allowed client.
func (s *Service) closedFamily() string {
	for _, f := range model.Families {
		admits := slices.ContainsFunc(s.AllowedSources, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
		if !admits && s.serves(f) {
			return fmt.Sprintf("; no %s client", f)
		}
	}
	return ""
}

// serves reports whether a frontend has an address of a family.
func (s *Service) serves(f model.Family) bool {
	return slices.ContainsFunc(s.Ports, func(p Port) bool {
		return slices.ContainsFunc(p.Frontends, func(o Frontend) bool {
			at, err := netip.ParseAddrPort(o.Address)
			return err == nil && model.FamilyOf(at.Addr()) == f
		})
	})
}

// maxRanges is how many ranges a line lists.
const maxRanges = 10

func ranges(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return list(texts, maxRanges)
}

// SourceLists returns the lists of clients for the frontends of a kind in one family.
func (s *Service) SourceLists(kind string, f model.Family) []model.SourceList {
	of := &model.Service{
		Balance: s.Balance, External: &model.External{SourceRanges: s.SourceRanges},
		Extras: &model.Extras{Sources: model.NewSources(s.AllowedSources != nil, s.AllowedSources, s.DeniedSources)},
	}
	if kind == model.LoadBalancerIP.String() {
		return of.SourceLists(model.LoadBalancerIP, f)
	}
	return of.SourceLists(model.ClusterIP, f)
}
