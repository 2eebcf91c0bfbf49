package changes

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// named returns the endpoints of a Service as text, each with the name of DNS that has its
// address.
func named(list []address, of model.ServiceState) []string {
	out := texts(list)
	if of.Service == nil || len(of.Service.Extra().Names) == 0 {
		return out
	}
	for i, a := range list {
		if name := of.Service.NameOf(a.Addr()); name != "" {
			out[i] += " of " + name
		}
	}
	return out
}

// nameDetails describes servers by names that a Service gets or loses. Plans without DNS know no
// address of them.
func nameDetails(before, after *model.Service) (out []Detail) {
	was, is := nameTexts(before), nameTexts(after)
	added := slices.DeleteFunc(slices.Clone(is), func(t string) bool { return slices.Contains(was, t) })
	removed := slices.DeleteFunc(slices.Clone(was), func(t string) bool { return slices.Contains(is, t) })
	if len(added) > 0 {
		out = append(out, Detail{Kind: KindEndpoints, Text: number(len(added), "name") + " of servers added (" + shorten(added) + ")", Added: added})
	}
	if len(removed) > 0 {
		out = append(out, Detail{Kind: KindEndpoints, Text: number(len(removed), "name") + " of servers removed (" + shorten(removed) + ")", Removed: removed})
	}
	return out
}

func nameTexts(s *model.Service) (out []string) {
	for _, n := range s.Extra().Names {
		out = append(out, n.Text)
	}
	return out
}
