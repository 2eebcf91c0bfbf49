package changes

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// namedEndpoints returns the endpoints of a Service as text, each with the name of DNS that has its
// address.
func namedEndpoints(list []address, of model.ServiceState) []string {
	out := textsOf(list)
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
func nameDetails(before, after *model.Service) []Detail {
	was, is := nameTexts(before), nameTexts(after)
	added := slices.DeleteFunc(slices.Clone(is), func(t string) bool { return slices.Contains(was, t) })
	removed := slices.DeleteFunc(slices.Clone(was), func(t string) bool { return slices.Contains(is, t) })
	return listDetails(KindEndpoints, "name", " of servers", added, removed, "")
}

func nameTexts(s *model.Service) (out []string) {
	for _, n := range s.Extra().Names {
		out = append(out, n.Text)
	}
	return out
}
