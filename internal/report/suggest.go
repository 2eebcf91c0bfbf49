package report

import (
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// suggest adds the names that may be meant if the filter selects nothing.
func (r *report) suggest(all []frontend, filter *api.Filter) {
	r.Filtered = filter.Selects() || filter.Problems
	if !filter.Selects() || slices.ContainsFunc(all, func(f frontend) bool { return filter.Matches(f.Port.Service) }) {
		return
	}
	var namespaces, names, full []string
	for i := range all {
		if s := all[i].Port.Service; i == 0 || s != all[i-1].Port.Service {
			namespaces, names, full = append(namespaces, s.Namespace), append(names, s.Name), append(full, s.String())
		}
	}
	if filter.Namespace != "" && !slices.Contains(namespaces, filter.Namespace) {
		r.DidYouMean = suggest.Similar(filter.Namespace, slices.Compact(namespaces))
		return
	}
	for _, pattern := range filter.Names {
		if strings.Contains(pattern, "/") {
			r.DidYouMean = append(r.DidYouMean, suggest.Similar(pattern, full)...)
		} else {
			r.DidYouMean = append(r.DidYouMean, suggest.Similar(pattern, names)...)
		}
	}
}
