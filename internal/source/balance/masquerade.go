package balance

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

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
