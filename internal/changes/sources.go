package changes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

func (p pair) describeSources() (out []Detail) {
	a, b := p.before, p.after
	list := func(set *setting.Setting, before, after []netip.Prefix, had, has bool) {
		added, removed := textsOf(subtractPrefixes(after, before)), textsOf(subtractPrefixes(before, after))
		if len(added)+len(removed) == 0 && had == has {
			return
		}
		text := func(list []netip.Prefix, given bool) string {
			switch {
			case !given:
				return set.Default
			case len(list) == 0:
				return "no client"
			}
			return joinFew(textsOf(list))
		}
		d := Detail{Kind: Kind(set.Kind), Added: added, Removed: removed}
		switch {
		case !had || !has || len(before) == 0 || len(after) == 0:
			d.Text = set.Label + ": " + text(before, had) + " → " + text(after, has)
		case len(added) > 0 && len(removed) > 0:
			d.Text = fmt.Sprintf("%s: %s added, %s removed", set.Label, joinFew(added), joinFew(removed))
		default:
			d = listDetails(d.Kind, strings.TrimSuffix(set.Label, "s"), "", added, removed, "")[0]
		}
		out = append(out, d)
	}
	s, t := a.clientSources(), b.clientSources()
	list(setting.AllowedClients, s.Allowed, t.Allowed, s.Limited, t.Limited)
	list(setting.DeniedClients, s.Denied, t.Denied, len(s.Denied) > 0, len(t.Denied) > 0)
	return out
}

// clientSources returns the sources without the address of the frontend itself, which the
// ranges of the node entail (4.33): otherwise the frontends of a Service would differ.
func (f *frontend) clientSources() model.Sources {
	if f.Sources == nil {
		return model.Sources{}
	}
	own := netip.PrefixFrom(f.Address, f.Address.BitLen())
	others := func(list []netip.Prefix) []netip.Prefix {
		if !slices.Contains(list, own) {
			return list
		}
		return slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return p == own })
	}
	s := *f.Sources
	s.Allowed, s.Denied = others(s.Allowed), others(s.Denied)
	return s
}

func subtractPrefixes(a, b []netip.Prefix) []netip.Prefix {
	known := make(map[netip.Prefix]struct{}, len(b))
	for _, p := range b {
		known[p] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(a), func(p netip.Prefix) bool { _, ok := known[p]; return ok })
}
