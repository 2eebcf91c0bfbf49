package balance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
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

// masqueradeFrom reads the addresses to masquerade from. A default is for Balances that masquerade.
func (e *expander) masqueradeFrom() {
	field, inherited := setting.MasqueradeFrom.Field, e.isInherited(setting.MasqueradeFrom)
	switch {
	case len(e.MasqueradeFrom) == 0:
		return
	case len(e.MasqueradeFrom) > budget.MasqueradeAddresses:
		e.Add(field, nil, fmt.Sprintf("has more than %d addresses: shorten the list", budget.MasqueradeAddresses))
		return
	case e.values.ClientAddresses == model.KeepClientAddresses:
		if !inherited {
			e.Add(field, nil, "is for connections that are masqueraded: write clientAddresses: masquerade, or remove it")
		}
		return
	case e.values.Relay != model.NoRelay:
		if !inherited {
			e.Add(field, nil, "is not possible with relay, whose connections begin on this machine: remove it, or write relay: false")
		}
		return
	}
	for i, text := range e.MasqueradeFrom {
		at := fmt.Sprintf("%s[%d]", field, i)
		a, problem := parseStrict(text, convert.ParseEndpoint)
		switch f := model.FamilyOf(a); {
		case problem != "":
			e.Add(at, text, problem)
		case slices.Contains(e.values.MasqueradeFrom, a):
			e.Add(at, text, "is given twice: remove one")
		case e.listensIn(f) < 0 && !inherited:
			e.Warn(at, text, fmt.Sprintf("has no effect: listen has no %s address", f))
		default:
			e.values.MasqueradeFrom = append(e.values.MasqueradeFrom, a)
		}
	}
}
