package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// refused prints how many connections were refused, with what each reason means and what to do.
func (p *describePrinter) refused(s *api.Description) {
	if len(s.Refused) == 0 {
		return
	}
	const name = "refused"
	p.Fact(name, "%s", refused(s.Refused))
	for _, reason := range refusedReasons(s.Refused) {
		if r := model.RefusalOf(reason); r != nil {
			p.Fact(name, "%s: %s; %s", r.Name, p.Words.Text(r.Text), p.Words.Text(r.Advice))
		}
	}
	if s.From == api.FromDaemon {
		p.Fact(name, "nftproxy observe %s/%s names the clients", s.Namespace, s.Name)
	}
}

// refusedReasons returns the reasons of some counts, the one of the largest number first.
func refusedReasons(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// refused returns for example "12 denied, 3 no-endpoints", the largest number first.
func refused(counts map[string]uint64) string {
	reasons := refusedReasons(counts)
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = fmt.Sprintf("%d %s", counts[r], r)
	}
	return strings.Join(texts, ", ")
}
