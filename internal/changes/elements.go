package changes

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Count adds the numbers of changed elements to the Services, and Services of which
// only elements change that clients do not notice.
func Count(services []Service, p *plan.Plan) []Service {
	counts := make(map[string]int)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Kind() == "element" {
			counts[p.ServicePort(c)]++
		}
	}
	return addCounts(services, counts)
}

// addCounts adds the numbers of elements by their comment.
func addCounts(services []Service, byComment map[string]int) []Service {
	byName := make(map[model.ServiceName]int)
	for comment, n := range byComment {
		if comment == "" { // of no Service alone
			continue
		}
		port, _ := nft.ParseComment(comment)
		byName[port.Service] += n
	}
	for i := range services {
		services[i].Elements = byName[services[i].Name]
		delete(byName, services[i].Name)
	}
	for name, n := range byName {
		services = append(services, Service{Name: name, Action: Changed, Elements: n, Details: []Detail{
			{Kind: KindRules, Text: number(n, "element") + " of the rules, which clients do not notice"}}})
	}
	slices.SortFunc(services, func(a, b Service) int { return a.Name.Compare(b.Name) })
	return services
}
