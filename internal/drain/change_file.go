package drain

import (
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

type changesItem struct {
	Balance    string `json:"balance"`
	Server     string `json:"server"`
	Weight     *int   `json:"weight,omitempty" yaml:",omitempty"`
	FileWeight *int   `json:"fileWeight,omitempty" yaml:"fileWeight,omitempty"`
	Since      string `json:"since,omitempty" yaml:",omitempty"`
	By         string `json:"by,omitempty" yaml:",omitempty"`
}

func (l Changes) addItem(it changesItem) (field string, err error) {
	r := ChangeEntry{Balance: it.Balance, Server: it.Server, Weight: it.Weight, FileWeight: it.FileWeight, By: it.By}
	if r.Since, err = parseSince(it.Since); err != nil {
		return "since", err
	}
	return l.add(&r)
}

func (l Changes) items() (out []changesItem) {
	for _, r := range l.Entries() {
		out = append(out, changesItem{r.Balance, r.Server, r.Weight, r.FileWeight, sinceText(r.Since), strings.ToValidUTF8(r.By, "\ufffd")})
	}
	return out
}

// with returns the changes and those of another list, which replace changes of the same servers.
func (l Changes) with(o Changes) Changes {
	out := maps.Clone(o)
	for name, all := range l {
		rest := append(without(all, o[name]), o[name]...)
		slices.SortFunc(rest, func(a, b Change) int { return a.compare(b.Server) })
		out = out.replaced(name, rest)
	}
	return out
}

// replaced returns the list with these changes of a Balance in place of others.
func (l Changes) replaced(name model.ServiceName, all []Change) Changes {
	out := maps.Clone(l)
	if out == nil {
		out = make(Changes)
	}
	if len(all) == 0 {
		delete(out, name)
	} else {
		out[name] = all
	}
	return out
}

// differing returns the Balances whose changes two lists have in different ways.
func (l Changes) differing(o Changes) (names []model.ServiceName) {
	for _, list := range []Changes{l, o} {
		for name := range list {
			if !slices.Equal(l[name], o[name]) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
