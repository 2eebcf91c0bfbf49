package names

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Problems implements [feature.Reporter].
func (e *Engine) Problems(now time.Time) (out []model.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.entries() {
		if text := n.message(now); text != "" {
			var users []string
			for _, name := range slices.SortedFunc(maps.Keys(n.users), model.ServiceName.Compare) {
				users = append(users, name.String())
			}
			out = append(out, model.Notice{Object: model.Object{Kind: "Name", Name: strings.TrimSuffix(n.name, ".")}, Reason: model.NameFailing, Message: text + " (" + terminal.List(users, 1) + ")"})
		}
	}
	for name, s := range e.services {
		if s.tooMany {
			out = append(out, model.Notice{Object: name.Object(), Reason: model.NameFailing,
				Message: fmt.Sprintf("has names that are not looked up: this node has more than %d", budget.Names)})
		}
	}
	return out
}

// ProblemsOf returns what is wrong with the names of a Service.
func (e *Engine) ProblemsOf(of model.ServiceName, now time.Time) (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.entries() {
		if _, uses := n.users[of]; uses && n.message(now) != "" {
			out = append(out, "name "+strings.TrimSuffix(n.name, ".")+": "+n.message(now))
		}
	}
	return out
}

// entries returns all names, sorted. The caller holds the lock.
func (e *Engine) entries() []*entry {
	return slices.SortedFunc(maps.Values(e.names), func(a, b *entry) int { return strings.Compare(a.name, b.name) })
}

// Counts returns how many names are followed, and how many of them failed at the last lookup.
func (e *Engine) Counts() (names, failing int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.names {
		if n.err != nil {
			failing++
		}
	}
	return len(e.names), failing
}

// AddTo implements [feature.Knower] with the addresses of all names of Services.
func (e *Engine) AddTo(k *feature.Known) { k.Resolved = e.resolved() }

func (e *Engine) resolved() (out []model.ResolvedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, s := range e.services {
		if s.given.Service == nil {
			continue
		}
		all := e.addresses(name, s.given.Service)
		for i := range all {
			out = append(out, model.ResolvedName{ServiceRef: name.Ref(), Name: s.given.Service.Extra().Names[i].Name, Addresses: all[i]})
		}
	}
	slices.SortFunc(out, func(a, b model.ResolvedName) int {
		return cmp.Or(a.ServiceName().Compare(b.ServiceName()), strings.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(out, func(a, b model.ResolvedName) bool { return a.ServiceRef == b.ServiceRef && a.Name == b.Name })
}

// Plan implements [feature.Planner].
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	edited, unknown := mark(s, k.Resolved)
	p := feature.Planned{Snapshot: edited}
	switch {
	case len(unknown) == 0:
	case k.Machine == nil:
		return feature.Planned{Snapshot: s, Names: unknown, Warning: "the addresses of names are known beside a running nftproxy only: here, their servers are left out"}, nil
	default:
		p.Names, p.Warning = unknown, "no running nftproxy knows the addresses of names: here, their servers are left out"
	}
	return p, nil
}

// mark returns a snapshot as an engine edits it that has these answers, and the names of its
// Services that have none. A Service that the engine does not know has the answers of another
// one for the same name.
func mark(s *model.Snapshot, answers []model.ResolvedName) (edited *model.Snapshot, unknown []string) {
	if !slices.ContainsFunc(s.Services, func(s *model.Service) bool { return len(s.Extra().Names) > 0 }) {
		return s, nil
	}
	of := func(service model.ServiceName, n *model.NamedServer) []model.NamedAddress {
		i := slices.IndexFunc(answers, func(r model.ResolvedName) bool { return r.Name == n.Name && r.ServiceName() == service })
		if i < 0 {
			i = slices.IndexFunc(answers, func(r model.ResolvedName) bool { return r.Name == n.Name })
		}
		if i < 0 {
			unknown = append(unknown, n.Label())
			return nil
		}
		return answers[i].Addresses
	}
	edited = s.Edit(func(name model.ServiceName, state model.ServiceState) model.ServiceState {
		named := state.Service.Extra().Names
		if len(named) == 0 {
			return state
		}
		addresses := make([][]model.NamedAddress, len(named))
		for i := range named {
			addresses[i] = of(name, &named[i])
		}
		return state.WithNames(addresses)
	})
	slices.Sort(unknown)
	return edited, slices.Compact(unknown)
}
