package balance

import (
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// Rest is a Balance with all that it has from others, which Kubernetes has no objects for.
type Rest struct {
	*Balance
	Fields []string // that Kubernetes has nothing for
}

// restOf returns a Balance as it is. It has no fields if objects say the same.
func restOf(b *Balance, e *Expansion) *Rest {
	r := &Rest{Balance: b}
	for _, f := range []struct {
		name string
		is   bool
	}{
		{"interfaces in listen", len(e.listeners) > 0}, {"names in backends", len(e.names) > 0},
		{setting.Relay.Field, e.settings.Relay != model.NoRelay}, {setting.Announce.Field, e.settings.Announce != ""},
		{setting.MasqueradeFrom.Field, len(e.settings.MasqueradeFrom) > 0},
		{setting.Affinity.Field + " for several ports", e.settings.Affinity > 0 && len(e.Service.Spec.Ports)+len(e.settings.Ranges) > 1},
	} {
		if f.is {
			r.Fields = append(r.Fields, f.name)
		}
	}
	return r
}

// Text returns the Balance as a document, with a comment.
func (r *Rest) Text() (string, error) {
	text, err := r.Balance.Text()
	return "# A Balance, because Kubernetes has no objects with " + strings.Join(r.Fields, " and ") + ".\n" + text, err
}
