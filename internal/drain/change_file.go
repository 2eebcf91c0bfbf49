package drain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

type changesItem struct {
	Balance    string `json:"balance"`
	Server     string `json:"server"`
	Weight     *int   `json:"weight,omitempty"`
	FileWeight *int   `json:"fileWeight,omitempty"`
	Since      string `json:"since,omitempty"`
	By         string `json:"by,omitempty"`
}

func (d *document) changes(o *manifest.Object) (l Changes, problems manifest.Errors) {
	l = make(Changes)
	for i, it := range d.Changes {
		field, err := l.addItem(&it)
		if err != nil {
			problems = append(problems, o.Error(&manifest.FieldError{Field: fmt.Sprintf("changes[%d].%s", i, field), Problem: err.Error()}))
		}
	}
	return l, problems
}

func (l Changes) addItem(it *changesItem) (field string, err error) {
	r := ChangeEntry{Balance: it.Balance, Server: it.Server, Weight: it.Weight, FileWeight: it.FileWeight, By: it.By}
	if r.Since, err = parseSince(it.Since); err != nil {
		return "since", err
	}
	return l.add(&r)
}

func (l Changes) writeTo(b *strings.Builder) {
	for _, name := range l.Names() {
		for _, c := range l[name] {
			fmt.Fprintf(b, "- balance: %s\n  server: %s\n", yamltext.Quote(name.String()), yamltext.Quote(c.Server.String()))
			if c.Weight != absent {
				fmt.Fprintf(b, "  weight: %d\n", c.Weight)
			}
			if c.File != absent {
				fmt.Fprintf(b, "  fileWeight: %d\n", c.File)
			}
			writeSince(b, c.Since)
			if c.By != "" {
				fmt.Fprintf(b, "  by: %s\n", yamltext.Quote(c.By))
			}
		}
	}
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
	for name, all := range l {
		if !slices.Equal(all, o[name]) {
			names = append(names, name)
		}
	}
	for name := range o {
		if l[name] == nil {
			names = append(names, name)
		}
	}
	return names
}
