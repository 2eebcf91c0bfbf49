package changes

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Count adds the numbers of changed elements to the Services, and adds Services whose
// changes clients do not notice.
func Count(services []Service, p *plan.Plan) []Service {
	recounted := p.Recounted()
	byName := make(map[model.ServiceName]elements)
	for i := range p.Changes {
		c := &p.Changes[i]
		comment := ""
		if c.Kind() == "element" {
			comment = p.ServicePort(c)
		}
		if comment == "" { // of no Service alone
			continue
		}
		port, kind := nft.ParseComment(comment)
		n, known := byName[port.Service]
		if n.all++; recounted(c) {
			n.counters++
		}
		n.onlyLoadBalancers = kind == model.LoadBalancerIP && (n.onlyLoadBalancers || !known)
		byName[port.Service] = n
	}
	for i := range services {
		services[i].Elements = byName[services[i].Name].all
		delete(byName, services[i].Name)
	}
	for name, n := range byName {
		services = append(services, Service{Name: name, Words: words.Of(n.onlyLoadBalancers), Action: Changed, Elements: n.all, Details: []Detail{n.describeUnnoticed()}})
	}
	slices.SortFunc(services, func(a, b Service) int { return a.Name.Compare(b.Name) })
	return services
}

// elements are numbers of elements that change: all, and the ones whose counters alone
// begin or end.
type elements struct {
	all, counters     int
	onlyLoadBalancers bool // as of a Balance
}

// Values of [Detail.New] for [KindRules]: what changes.
const (
	onlyCounters = "counters"
	anyElements  = "elements"
)

func (n elements) describeUnnoticed() Detail {
	if n.counters == n.all {
		return Detail{Kind: KindRules, New: onlyCounters, Text: "counters of " + terminal.Count(n.all, "element") + " of the rules, which clients do not notice"}
	}
	return Detail{Kind: KindRules, New: anyElements, Text: terminal.Count(n.all, "element") + " of the rules, which clients do not notice"}
}

// groupUnnoticed returns the Services whose changes clients notice, and one line for the others,
// if they are several.
func groupUnnoticed(services []Service) (noticed []Service, others int, text string) {
	sum := elements{}
	for i := range services {
		s := &services[i]
		if len(s.Details) != 1 || s.Details[0].Kind != KindRules {
			noticed = append(noticed, *s)
			continue
		}
		others++
		if sum.all += s.Elements; s.Details[0].New == onlyCounters {
			sum.counters += s.Elements
		}
	}
	if others < 2 {
		return services, 0, ""
	}
	return noticed, others, sum.describeUnnoticed().Text
}
