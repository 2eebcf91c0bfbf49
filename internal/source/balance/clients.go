package balance

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// readClients reads the ranges of allowed clients. An address is a range of its own.
func (e *expander) readClients() {
	limited := make(map[model.Family]bool)
	for i, text := range e.Clients {
		field := fmt.Sprintf("clients[%d]", i)
		p, problem := convert.ParsePrefix(text)
		if a, none := convert.ParseAddress(text); none == "" {
			p, problem = netip.PrefixFrom(a, a.BitLen()), ""
		}
		if problem != "" {
			e.Add(field, text, problem)
			continue
		}
		e.reviewRange(field, text, p)
		e.ranges = append(e.ranges, p.String())
		limited[model.FamilyOf(p.Addr())] = true
	}
	for _, l := range e.addresses {
		for _, f := range l.servedFamilies() {
			if len(e.Clients) > 0 && len(e.ranges) == len(e.Clients) && !limited[f] {
				every := map[bool]string{true: "0.0.0.0/0", false: "::/0"}[f == model.IPv4]
				e.Add("clients", nil, fmt.Sprintf("has no %s range, and listen has %s: add a range, or %q for all clients", f, l.where, every))
				return
			}
		}
	}
}

func (e *expander) readDeny() {
	if len(e.Deny) > budget.ListEntries { // as in the annotation
		e.Add("deny", nil, fmt.Sprintf("has more than %d entries: shorten the list", budget.ListEntries))
		return
	}
	var denied []netip.Prefix
	for i, text := range e.Deny {
		p, problem := convert.ParseClients(text)
		if problem != "" {
			e.Add(fmt.Sprintf("deny[%d]", i), text, problem)
			continue
		}
		e.reviewRange(fmt.Sprintf("deny[%d]", i), text, p)
		denied = append(denied, p)
	}
	e.values.Sources = model.NewSources(false, nil, denied)
}

// reviewRange reports leading zeros in a range of clients, and warns of one that is written
// as one of its addresses.
func (e *expander) reviewRange(field, text string, p netip.Prefix) {
	plain := p.String()
	if !strings.Contains(text, "/") {
		plain = p.Addr().String()
	}
	if problem := zeroProblem(text, plain); problem != "" {
		e.Add(field, text, problem)
	} else if given, err := netip.ParsePrefix(text); err == nil && given != given.Masked() {
		e.Warn(field, text, fmt.Sprintf("stands for %s, which has %q: write the range, or the address alone", given.Masked(), given.Addr().String()))
	}
}
